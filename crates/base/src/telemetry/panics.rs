//! Logs panics as records of the configured format.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;

/// Replaces the hook that prints panics as text. The panic itself continues as before.
pub(super) fn install_hook() {
    std::panic::set_hook(Box::new(log_panic));
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("the panic has no text");
    let thread = std::thread::current();
    // `RUST_BACKTRACE` enables it.
    let backtrace = Backtrace::capture();
    let is_captured = backtrace.status() == BacktraceStatus::Captured;
    tracing::error!(
        location = panic.location().map(tracing::field::display),
        thread = thread.name(),
        backtrace = is_captured.then(|| tracing::field::display(&backtrace)),
        "panicked: {message}"
    );
}
