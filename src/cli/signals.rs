//! Handles signals. The first TERM or INT begins a graceful stop; the second one stops at once.
//!
//! HUP reloads the configuration. If the gateway runs in a terminal, HUP means that the terminal was closed,
//! and has the effect of TERM.

use std::fs::File;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::shutdown::Shutdown;

/// How long tasks have to end after a second signal. The process then exits without them.
const ABORT_GRACE: Duration = Duration::from_secs(1);

/// The signals that the gateway handles. Once this exists, they no longer kill the process.
#[derive(Debug)]
pub(super) struct Signals {
    stops: [Signal; 2],
    hangup: Signal,
    hangup_stops: bool,
}

impl Signals {
    /// Must be called inside the runtime.
    pub(super) fn new() -> io::Result<Self> {
        // Read this before `signal` replaces the disposition of HUP.
        let hangup_stops = has_controlling_terminal()
            && !is_hangup_ignored(&std::fs::read_to_string("/proc/self/status")?);
        let stops = [
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        ];
        Ok(Self {
            stops,
            hangup: signal(SignalKind::hangup())?,
            hangup_stops,
        })
    }

    /// Turns signals into a reload or a stop. Completes a grace period after the second stop signal.
    pub(super) async fn forward(mut self, shutdown: &Shutdown, reload: &Notify) {
        loop {
            tokio::select! {
                () = next_stop(&mut self.stops) => break,
                _ = self.hangup.recv() => if self.hangup_stops { break },
            }
            tracing::info!("reloading the configuration");
            reload.notify_one();
        }
        tracing::info!("draining; a second signal stops at once");
        shutdown.start_drain();
        // A closing terminal sends HUP more than once, so a second HUP does not stop at once.
        next_stop(&mut self.stops).await;
        tracing::warn!("second signal: stopping at once");
        shutdown.abort();
        tokio::time::sleep(ABORT_GRACE).await;
    }
}

async fn next_stop([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Whether the process has a controlling terminal. Closing it sends HUP.
fn has_controlling_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether HUP was ignored at the start, as with `nohup`. The operator then expects the gateway to survive its
/// terminal.
fn is_hangup_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_hangup_ignored_by_nohup() {
        assert!(is_hangup_ignored("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!is_hangup_ignored("Name:\tx\nSigIgn:\t0000000000001000\n"));
        assert!(!is_hangup_ignored(""));
    }
}
