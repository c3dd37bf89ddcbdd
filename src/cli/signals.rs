//! TERM, INT and HUP: the first asks for a stop, the second ends everything at once.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::shutdown::Shutdown;

/// What is left after a second signal: whoever has not ended by then is left behind.
const LAST: Duration = Duration::from_secs(1);

/// The signals that stop the gateway; from its making on they no longer kill.
#[derive(Debug)]
pub(super) struct Signals([Signal; 3]);

impl Signals {
    /// Must be called inside the runtime.
    pub(super) fn new() -> io::Result<Self> {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        let [terminate, interrupt, hangup] = kinds.map(signal);
        Ok(Self([terminate?, interrupt?, hangup?]))
    }

    /// Passes them on; resolves when nobody is waited for any more.
    pub(super) async fn pass_on(mut self, shutdown: &Shutdown) {
        self.next().await;
        tracing::info!("draining; a second signal ends at once");
        shutdown.begin();
        self.next().await;
        tracing::warn!("second signal: ending at once");
        shutdown.abort();
        tokio::time::sleep(LAST).await;
    }

    async fn next(&mut self) {
        let [terminate, interrupt, hangup] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
