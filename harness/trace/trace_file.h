#pragma once
#include <filesystem>
#include <ostream>
#include <string_view>

#include "harness/trace/trace.h"

/// The file of a trace: JSON lines, so that it can be looked at, version 1.
///   {"format":"nsa-trace","version":1,"device":...,"dropped":0,"open_ranges":0,"foreign_times":0}
///   ["n","text"]                                  the next name; indices count from 0
///   ["k",begin,end,device,stream,correlation,name,graph_node]            kernel
///   ["c",begin,end,device,stream,correlation,name,graph_node,bytes]      copy
///   ["s",begin,end,device,stream,correlation,name,graph_node,bytes]      memory set
///   ["a",begin,end,thread,correlation,name,kind]                         call of the host
///   ["r",begin,end,thread,name]                                          range of the host
///   ["w",at,stream]                                                      wait for an event
///   ["g",name,parent]                             range of a capture; parent: its line among these
///                                                 counted from 1, 0: outermost
///   ["m",node,range]                              node captured in such a range; 0: in none
///   ["end",lines]                                  lines in front of this one
/// Times in ns since the start of the trace. A name stands in front of the lines that use it.
namespace harness::trace {

void write_trace(std::ostream& out, const Trace& trace);

/// Reads what write_trace wrote; a trace from elsewhere is refused by name and byte offset: another
/// format or version, a line that is no record, a number out of range, an index without a name, an
/// end before its begin, a range of a capture that stands behind what it contains, a missing or
/// wrong last line. Throws harness::Error; `name` stands in it.
Trace read_trace(std::string_view bytes, const std::string& name);

/// The same from a file, plain or compressed by gzip (at most 4 GiB of text).
Trace read_trace_file(const std::filesystem::path& file);

/// Writes the file, compressed by gzip where its name ends in .gz. Throws harness::Error when it
/// cannot be written.
void write_trace_file(const std::filesystem::path& file, const Trace& trace);

}  // namespace harness::trace
