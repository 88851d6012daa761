#include "pacer/base/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace pacer {
namespace {

// Sets or removes an environment variable for the life of the object.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~Variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

// Puts a pseudo-terminal of 57 columns, or a pipe, in the place of stderr for the life of the object.
class OtherStderr {
 public:
  explicit OtherStderr(bool terminal) : saved_(::dup(2)) {
    int ends[2] = {-1, -1};
    if (terminal) {
      ends[0] = ::posix_openpt(O_RDWR | O_NOCTTY);
      ::grantpt(ends[0]);
      ::unlockpt(ends[0]);
      ends[1] = ::open(::ptsname(ends[0]), O_RDWR | O_NOCTTY);
      const winsize size{.ws_row = 20, .ws_col = 57, .ws_xpixel = 0, .ws_ypixel = 0};
      ::ioctl(ends[1], TIOCSWINSZ, &size);
    } else if (::pipe(ends) != 0) {
      ADD_FAILURE() << "no pipe";
    }
    ::dup2(ends[1], 2);
    ::close(ends[1]);
    other_end_ = ends[0];
  }
  ~OtherStderr() {
    ::dup2(saved_, 2);
    ::close(saved_);
    ::close(other_end_);
  }
  OtherStderr(const OtherStderr&) = delete;
  OtherStderr& operator=(const OtherStderr&) = delete;

 private:
  int saved_, other_end_ = -1;
};

TEST(Terminal, ATerminalHasColumnsAndColour) {
  const Variable term("TERM", "xterm"), no_colour("NO_COLOR", nullptr), force("CLICOLOR_FORCE", nullptr);
  const OtherStderr terminal(true);
  EXPECT_TRUE(is_terminal(StandardStream::error));
  EXPECT_EQ(terminal_columns(StandardStream::error), 57);
  EXPECT_TRUE(has_colour(StandardStream::error));
  {
    const Variable dumb("TERM", "dumb");
    EXPECT_FALSE(has_colour(StandardStream::error));
  }
  const Variable off("NO_COLOR", "1");
  EXPECT_FALSE(has_colour(StandardStream::error));
}

TEST(Terminal, AFileHasColourOnlyWhenForced) {
  const Variable term("TERM", "xterm"), no_colour("NO_COLOR", nullptr), force("CLICOLOR_FORCE", nullptr);
  const OtherStderr pipe(false);
  EXPECT_FALSE(is_terminal(StandardStream::error));
  EXPECT_EQ(terminal_columns(StandardStream::error), 80);
  EXPECT_FALSE(has_colour(StandardStream::error));
  const Variable on("CLICOLOR_FORCE", "1");
  EXPECT_TRUE(has_colour(StandardStream::error));
}

TEST(Terminal, StyledTextEndsItsStyle) {
  EXPECT_EQ(styled("x", Style::green, true), "\033[32mx\033[0m");
  EXPECT_EQ(styled("x", Style::green, false), "x");
}

}  // namespace
}  // namespace pacer
