//! TERM and INT: the first asks for a stop, the second ends everything at once. HUP: the configuration is read again, or,
//! where it says that a terminal was closed, the same as TERM.

use std::fs::File;
use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::shutdown::Shutdown;

/// What is left after a second signal: whoever has not ended by then is left behind.
const ABORT_GRACE: Duration = Duration::from_secs(1);

/// The signals that the gateway knows; from its making on they no longer kill.
#[derive(Debug)]
pub(super) struct Signals {
    stops: [Signal; 2],
    hangup: Signal,
    hangup_stops: bool,
}

enum SignalAction {
    Stop,
    Reload,
}

impl Signals {
    /// Must be called inside the runtime.
    pub(super) fn new() -> io::Result<Self> {
        // Before the signal is ours.
        let hangup_stops = has_controlling_terminal() && !is_hangup_ignored(&std::fs::read_to_string("/proc/self/status")?);
        let stops = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        Ok(Self { stops, hangup: signal(SignalKind::hangup())?, hangup_stops })
    }

    /// Passes them on; resolves when nobody is waited for any more.
    pub(super) async fn forward(mut self, shutdown: &Shutdown, reload: &Notify) {
        while let SignalAction::Reload = self.next_action().await {
            tracing::info!("reading the configuration again");
            reload.notify_one();
        }
        tracing::info!("draining; a second signal ends at once");
        shutdown.start_drain();
        // A terminal that closes says so more than once.
        let [terminate, interrupt] = &mut self.stops;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("second signal: ending at once");
        shutdown.abort();
        tokio::time::sleep(ABORT_GRACE).await;
    }

    async fn next_action(&mut self) -> SignalAction {
        let [terminate, interrupt] = &mut self.stops;
        tokio::select! {
            _ = terminate.recv() => SignalAction::Stop,
            _ = interrupt.recv() => SignalAction::Stop,
            _ = self.hangup.recv() => if self.hangup_stops { SignalAction::Stop } else { SignalAction::Reload },
        }
    }
}

/// Whether somebody runs this in a terminal, whose end would be told by HUP.
fn has_controlling_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Whether HUP was ignored when this process began, as `nohup` has it: then the terminal's end is not meant.
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
