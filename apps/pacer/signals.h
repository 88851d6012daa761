// Signals that end the program: how it takes them, and how it passes them on.
#pragma once

namespace pacer::cli {

// A write beyond a limit on file sizes fails like a full disk instead of killing the process, and a mapped file that
// became shorter ends it with a message and the exit code of data instead of a bare signal.
void take_signals();

// After a stop that was asked for by a signal and granted: ends the process as the signal would have, which is what
// shells and schedulers look at. Nothing happens for 0.
void end_as_asked(int signal);

}  // namespace pacer::cli
