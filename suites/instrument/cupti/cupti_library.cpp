#include "suites/instrument/cupti/cupti_library.h"

#include <dlfcn.h>

#include "suites/instrument/cupti/activity_collector.h"

namespace suites {
namespace {

constexpr const char* kFile = "libcupti.so.13";

void* open_file() {
  if (void* loaded = dlopen(kFile, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  if (void* found = dlopen(kFile, RTLD_NOW)) return found;
  const char* why = dlerror();
  throw CollectorUnavailable("CUPTI_UNAVAILABLE", std::string("cannot load ") + kFile + ": " +
                                                      (why == nullptr ? "unknown" : why));
}

std::string path_of(void* symbol) {
  Dl_info info;
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : kFile;
}

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw CollectorUnavailable("CUPTI_UNAVAILABLE",
                               std::string(kFile) + " has no function " + name);
}

const char* unavailable_code(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
    case CUPTI_ERROR_MAX_LIMIT_REACHED:
      return "CUPTI_BUSY";
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "CUPTI_PERMISSION";
    default:
      return "CUPTI_UNAVAILABLE";
  }
}

}  // namespace

void CuptiLibrary::must(CUptiResult result, const char* what) const {
  if (result != CUPTI_SUCCESS)
    throw CollectorUnavailable(unavailable_code(result), std::string(what) + ": " + text(result));
}

std::string CuptiLibrary::text(CUptiResult result) const {
  const char* text = nullptr;
  if (result_string(result, &text) != CUPTI_SUCCESS || text == nullptr) text = "unknown";
  return std::string(text) + " (" + std::to_string(static_cast<int>(result)) + ")";
}

CuptiLibrary open_cupti() {
  void* library = open_file();
  CuptiLibrary cupti{};
  look_up(library, "cuptiGetVersion", cupti.get_version);
  look_up(library, "cuptiGetResultString", cupti.result_string);
  look_up(library, "cuptiSubscribe", cupti.subscribe);
  look_up(library, "cuptiActivityRegisterCallbacks", cupti.register_callbacks);
  look_up(library, "cuptiGetTimestamp", cupti.get_timestamp);
  look_up(library, "cuptiEnableCallback", cupti.enable_callback);
  look_up(library, "cuptiActivitySetAttribute", cupti.set_attribute);
  look_up(library, "cuptiActivityEnable", cupti.enable);
  look_up(library, "cuptiActivityDisable", cupti.disable);
  look_up(library, "cuptiActivityEnableRuntimeApi", cupti.enable_runtime_call);
  look_up(library, "cuptiActivityEnableDriverApi", cupti.enable_driver_call);
  look_up(library, "cuptiActivityFlushAll", cupti.flush_all);
  look_up(library, "cuptiActivityGetNextRecord", cupti.next_record);
  look_up(library, "cuptiActivityGetNumDroppedRecords", cupti.num_dropped);
  look_up(library, "cuptiGetCallbackName", cupti.callback_name);
  look_up(library, "cuptiSetThreadIdType", cupti.set_thread_id_type);
  look_up(library, "cuptiGetGraphNodeId", cupti.graph_node_id);
  cupti.path = path_of(reinterpret_cast<void*>(cupti.get_version));
  return cupti;
}

}  // namespace suites
