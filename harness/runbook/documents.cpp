#include "harness/runbook/documents.h"

#include "harness/results/results.h"
#include "harness/runbook/plan/baseline.h"
#include "harness/runbook/plan/hardware.h"
#include "harness/runbook/plan/plan.h"
#include "harness/schema/json_schema.h"
#include "harness/schema/reference.h"

namespace harness {
namespace {

template <class T>
DocumentKind document(const std::string& name) {
  return {json_schema<T>("nsa-validate " + name), reference_page<T>(name)};
}

}  // namespace

const std::map<std::string, DocumentKind>& documents() {
  static const std::map<std::string, DocumentKind> kDocuments = {
      {"runbook",
       {extendable_json_schema<Runbook>("nsa-validate runbook"),
        reference_page<Runbook>("runbook")}},
      {"kind", document<KindSpec>("kind")},
      {"results", document<Results>("results")},
      {"plan", document<Plan>("plan")},
      {"baseline", document<BaselineFile>("baseline")},
      {"hardware", document<HardwareSpec>("hardware")}};
  return kDocuments;
}

}  // namespace harness
