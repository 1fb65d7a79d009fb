#include "nsa/train/checkpoint/sharded_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "nsa/program/input_error.h"
#include "nsa/train/checkpoint/run_state.h"
#include "nsa/train/ranks/rank_errors.h"

namespace nsa::train {
namespace fs = std::filesystem;
namespace {

const std::string kParameter = "parameter.", kFirst = "first_moment.", kSecond = "second_moment.";

/// This rank's pieces of all parameters and moments, in its file.
ShardFileRecord write_pieces(const Trainer& trainer, const fs::path& folder,
                             const ShardHead& head) {
  FileTensors tensors;
  std::map<std::string, ElementRange> pieces;
  const auto parameters = trainer.model()->named_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ShardLayout::Piece piece = trainer.kept_piece(i);
    if (piece.size == 0) continue;
    const std::string& name = parameters[i].key();
    pieces[name] = {piece.in_parameter, piece.size};
    tensors[kParameter + name] = to_file(trainer.optimizer().parameter(i));
    tensors[kFirst + name] = to_file(trainer.optimizer().moments(i).first);
    tensors[kSecond + name] = to_file(trainer.optimizer().moments(i).second);
  }
  const ShardCollectives& group = *trainer.shard_group();
  return write_shard(folder, shard_file_name(group.rank(), group.world()), head, tensors, pieces);
}

/// What a rank needs of a parameter: a range of its elements, for three tensors of that size.
struct Wanted {
  ElementRange range;
  std::vector<std::pair<std::string, at::Tensor>> targets = {};  ///< by the prefix of their names
  int64_t found = 0;
};

std::map<std::string, Wanted> wanted_pieces(Trainer& trainer) {
  std::map<std::string, Wanted> wanted;
  const auto parameters = trainer.model()->named_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ShardLayout::Piece piece = trainer.kept_piece(i);
    Wanted want{{piece.in_parameter, piece.size}};
    const AdamW::Moments& moments = trainer.optimizer().moments(i);
    for (const auto& [prefix, target] : {std::pair{kParameter, trainer.optimizer().parameter(i)},
                                         {kFirst, moments.first},
                                         {kSecond, moments.second}})
      if (target.defined()) want.targets.emplace_back(prefix, target.detach().view({-1}));
    wanted[parameters[i].key()] = std::move(want);
  }
  return wanted;
}

/// The elements of both; of size 0 where there are none.
ElementRange common_part(const ElementRange& a, const ElementRange& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max<int64_t>(0, std::min(a.begin + a.size, b.begin + b.size) - begin)};
}

void take_pieces(const FileTensors& tensors, const ShardFileRecord& record,
                 const std::string& where, std::map<std::string, Wanted>& wanted) {
  for (const auto& [name, piece] : record.pieces) {
    Wanted& want = wanted.at(name);
    const ElementRange part = common_part(piece, want.range);
    if (part.size == 0) continue;
    for (const auto& [prefix, target] : want.targets) {
      const auto found = tensors.find(prefix + name);
      const at::Tensor source = found == tensors.end() ? at::Tensor() : from_file(found->second);
      if (!source.defined() || source.numel() != piece.size ||
          source.scalar_type() != target.scalar_type())
        throw InputError("checkpoint " + where + ": tensor " + prefix + name + " must have " +
                         std::to_string(piece.size) + " elements of " +
                         c10::toString(target.scalar_type()) + "; it is of another model");
      target.narrow(0, part.begin - want.range.begin, part.size)
          .copy_(source.narrow(0, part.begin - piece.begin, part.size));
    }
    want.found += part.size;
  }
}

bool has_wanted(const ShardFileRecord& record, const std::string& where,
                const std::map<std::string, Wanted>& wanted) {
  bool any = false;
  for (const auto& [name, piece] : record.pieces) {
    const auto want = wanted.find(name);
    if (want == wanted.end())
      throw InputError("checkpoint " + where + ": parameter " + name + " is unknown to this model");
    any = any || common_part(piece, want->second.range).size > 0;
  }
  return any;
}

void write_all(const Trainer& trainer, const std::vector<StepRecord>& trace, const fs::path& dir,
               const RunIdentity& run, RankGroup& ranks) {
  const ShardHead head{trainer.steps_done(), identity_of_any_world(run)};
  const bool first = ranks.rank() == 0;
  fs::path folder = sharded_checkpoint_path(dir, head.step);
  folder += kPartOfCheckpoint;
  gather_or_throw(ranks, [&] {
    if (first) begin_sharded_checkpoint(dir, head.step);
    return std::string();
  });
  const std::vector<std::string> records = gather_or_throw(ranks, [&] {
    const bool writes = trainer.shard_group()->is_first_group();
    return writes ? to_text(write_pieces(trainer, folder, head)) : std::string();
  });
  gather_or_throw(ranks, [&] {
    if (!first) return std::string();
    FileTensors common;
    add_run_state(trainer, trace, common);
    ShardedManifest manifest{head.step, trainer.shard_group()->world(), head.run,
                             write_shard(folder, kCommonFile, head, common, {})};
    for (const std::string& record : records)
      if (!record.empty()) manifest.shards.push_back(shard_record_of_text(record));
    finish_sharded_checkpoint(dir, manifest);
    return std::string();
  });
}

}  // namespace

void save_shards(const Trainer& trainer, const std::vector<StepRecord>& trace, const fs::path& dir,
                 const RunIdentity& run, RankGroup& ranks) {
  try {
    write_all(trainer, trace, dir, run, ranks);
  } catch (const InputError& error) {
    const std::vector<int64_t> before = checkpoint_steps(dir);
    throw InputError(error.what() + (before.empty()
                                         ? std::string("; there is none before it")
                                         : "; the one of step " + std::to_string(before.back()) +
                                               " is intact: make room and continue "
                                               "with --resume"));
  }
}

std::vector<StepRecord> restore_shards(const fs::path& folder, const RunIdentity& run,
                                       Trainer& trainer) {
  const at::NoGradGuard no_grad;
  const ShardedManifest manifest = read_sharded_manifest(folder, run);
  std::map<std::string, Wanted> wanted = wanted_pieces(trainer);
  for (const ShardFileRecord& record : manifest.shards) {
    const std::string where = (folder / record.file).string();
    if (has_wanted(record, where, wanted))
      take_pieces(read_shard(folder, manifest, record), record, where, wanted);
  }
  for (const auto& [name, want] : wanted)
    if (want.found != want.range.size)
      throw InputError("checkpoint " + folder.string() + " has " + std::to_string(want.found) +
                       " of the " + std::to_string(want.range.size) + " elements of parameter " +
                       name + " that rank " + std::to_string(trainer.rank()) + " needs");
  const FileTensors common = read_shard(folder, manifest, manifest.common);
  TensorReader reader(common);
  std::vector<StepRecord> trace = restore_run_state(reader, manifest.step, trainer);
  reader.finish();
  return trace;
}

}  // namespace nsa::train
