#pragma once
#include "suites/faults/candidate.h"

namespace suites {

using Layer = std::function<nsa::NsaOutputs(const nsa::NsaInputs&, const nsa::NsaConfig&,
                                            const nsa::NsaOptions&)>;

/// A batch [B, S, ...] run as one pack of documents: every sequence is a document, followed by an
/// extra one of length 0, 1 or l-1 (these alternate). Returns the outputs of the sequences, in
/// batched shapes; those of the extra documents are dropped.
nsa::NsaOutputs as_documents(const Layer& layer, const nsa::NsaInputs& inputs,
                             const nsa::NsaConfig& config, const nsa::NsaOptions& options);

}  // namespace suites
