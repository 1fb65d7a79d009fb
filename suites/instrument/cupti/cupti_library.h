#pragma once
#include <cupti.h>

#include <string>

/// The functions of CUPTI, looked up at run time: programs start where it is missing. Only in
/// builds with CUDA.
namespace suites {

struct CuptiLibrary {
  std::string path;
  decltype(&::cuptiGetVersion) get_version;
  decltype(&::cuptiGetResultString) result_string;
  decltype(&::cuptiGetTimestamp) get_timestamp;
  decltype(&::cuptiSubscribe) subscribe;
  decltype(&::cuptiEnableCallback) enable_callback;
  decltype(&::cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&::cuptiActivitySetAttribute) set_attribute;
  decltype(&::cuptiActivityEnable) enable;
  decltype(&::cuptiActivityDisable) disable;
  decltype(&::cuptiActivityEnableRuntimeApi) enable_runtime_call;
  decltype(&::cuptiActivityEnableDriverApi) enable_driver_call;
  decltype(&::cuptiActivityFlushAll) flush_all;
  decltype(&::cuptiActivityGetNextRecord) next_record;
  decltype(&::cuptiActivityGetNumDroppedRecords) num_dropped;
  decltype(&::cuptiGetCallbackName) callback_name;
  decltype(&::cuptiSetThreadIdType) set_thread_id_type;
  decltype(&::cuptiGetGraphNodeId) graph_node_id;

  /// Text of a result, for errors.
  std::string text(CUptiResult result) const;

  /// Throws CollectorUnavailable (CUPTI_BUSY, CUPTI_PERMISSION, CUPTI_UNAVAILABLE) naming `what`,
  /// unless the result is success.
  void must(CUptiResult result, const char* what) const;
};

/// The library that the process has loaded (LibTorch brings it), else the one the loader finds.
/// Throws CollectorUnavailable naming what is missing.
CuptiLibrary open_cupti();

}  // namespace suites
