#include "pacer/parallel/gloo.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "pacer/base/error.h"

// The declarations were compared with what this version exports; look again at another one.
static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 13, "compare gloo_declarations with this LibTorch");

namespace pacer::parallel {
namespace {

const char* chosen_interface() {
  const char* name = std::getenv("GLOO_SOCKET_IFNAME");
  return name == nullptr || *name == 0 ? nullptr : name;
}

// "" for an address of another family than IPv4 and IPv6.
std::string numbers_of(const sockaddr* address) {
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) return {};
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST] = {};
  return ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const std::string address = one->ifa_name == name ? numbers_of(one->ifa_addr) : "";
    if (!address.empty()) return address;
  }
  return {};
}

std::string address_of_this_machines_name() {
  char name[256] = {};
  addrinfo wanted{}, *list = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (::gethostname(name, sizeof name - 1) != 0 || ::getaddrinfo(name, nullptr, &wanted, &list) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    const std::string address = numbers_of(one->ai_addr);
    if (!address.empty()) return address;
  }
  return {};
}

}  // namespace

std::string gloo_address() {
  const char* interface = chosen_interface();
  if (interface == nullptr) {
    const std::string address = address_of_this_machines_name();
    return address.empty() ? "127.0.0.1" : address;  // as Gloo does where the name leads nowhere
  }
  const std::string address = address_of_interface(interface);
  if (!address.empty()) return address;
  throw Error(ErrorKind::communication,
              std::string("GLOO_SOCKET_IFNAME is '") + interface + "', and this machine has no such interface",
              "'ip address' lists them");
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            std::chrono::milliseconds timeout) {
  const char* interface = chosen_interface();
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(interface == nullptr ? c10d::ProcessGroupGloo::createDefaultDevice()
                                                  : c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

}  // namespace pacer::parallel
