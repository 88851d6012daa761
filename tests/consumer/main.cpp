// Verifies one proposal of three drafts against a greedy target, as a server with its own loop would.
#include <cstdio>

#include <pacer/base/version.h>
#include <pacer/decode/verify.h>

int main() {
  pacer::decode::TargetRows target;
  target.greedy = {5, 7, 9, 2};  // what the target says behind the anchor and behind each draft
  pacer::draft::Proposal proposal;
  proposal.tokens = {5, 7, 8};  // the third one is wrong
  const pacer::decode::Verification result = pacer::decode::verify(target, proposal, {}, {});
  std::printf("pacer %s: %d drafts accepted, then %d\n", pacer::version(), static_cast<int>(result.accepted),
              static_cast<int>(result.next_token));
  return result.accepted == 2 && result.next_token == 9 ? 0 : 1;
}
