#pragma once
#include "suites/faults/candidate.h"

namespace suites {

using Layer = std::function<nsa::NsaOutputs(const nsa::NsaInputs&, const nsa::NsaConfig&,
                                            const nsa::NsaOptions&)>;

/// A batch [B, S, ...] run as one pack of documents: every sequence a document, and behind each
/// another one of length 0, 1 or l-1 in turn whose values belong to nobody. Outputs are those of
/// the sequences, in batched shapes.
nsa::NsaOutputs as_documents(const Layer& layer, const nsa::NsaInputs& inputs,
                             const nsa::NsaConfig& config, const nsa::NsaOptions& options);

}  // namespace suites
