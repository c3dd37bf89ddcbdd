//! The tokens that a task has used, read from the log of its session.

use serde::Deserialize;

use crate::event::EventRef;
use crate::eventlog::{Item, Reader};

/// Reads the reports of usage of a turn.
#[derive(Debug)]
pub(super) struct Usage {
    reader: Reader,
    reported: Option<u64>,
}

impl Usage {
    pub(super) fn new(reader: Reader) -> Self {
        Self {
            reader,
            reported: None,
        }
    }

    /// The last reported number of tokens.
    pub(super) fn reported(&self) -> Option<u64> {
        self.reported
    }

    /// Waits for the next report. Cancel-safe. Never returns after the end of the log.
    pub(super) async fn next(&mut self) -> u64 {
        loop {
            match self.read().await {
                Some(Some(used)) => return used,
                Some(None) => {}
                None => return std::future::pending().await,
            }
        }
    }

    /// Reads the reports up to this sequence number, which is committed.
    pub(super) async fn read_to(&mut self, seq: u64) {
        while self.reader.cursor() < seq && self.read().await.is_some() {}
    }

    /// The last report of the next events, if they have one. `None` after the end of the log.
    async fn read(&mut self) -> Option<Option<u64>> {
        match self.reader.next().await {
            Ok(Item::Run(run)) => {
                let used = run.events().filter_map(|event| used(&event)).last();
                self.reported = used.or(self.reported);
                Some(used)
            }
            Ok(Item::Ready { .. } | Item::Reset { .. }) => Some(None),
            Ok(Item::End) => None,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "could not read the usage of a task; its budget is not enforced"
                );
                None
            }
        }
    }
}

/// The tokens in a `usage_update` (ACP, "Session Usage").
fn used(event: &EventRef<'_>) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Update<'a> {
        session_update: &'a str,
        used: u64,
    }
    if event.kind() != "session.update" {
        return None;
    }
    let update: Update<'_> = serde_json::from_str(event.payload()?.update?.get()).ok()?;
    (update.session_update == "usage_update").then_some(update.used)
}
