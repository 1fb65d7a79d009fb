#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>

namespace base::protocol {

/// Variables by which rank `rank` of `world` on this machine finds the others, as torchrun sets
/// them; `port` is free now.
inline std::map<std::string, std::string> rank_variables(int rank, int world, int port) {
  return {{"RANK", std::to_string(rank)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}

/// A TCP port of this machine that no process listens on; 0 when there is none (see errno).
inline int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const bool bound = fd >= 0 && ::bind(fd, any, size) == 0 && ::getsockname(fd, any, &size) == 0;
  if (fd >= 0) ::close(fd);
  return bound ? ntohs(address.sin_port) : 0;
}

}  // namespace base::protocol
