//! Records the changes of the state of members of the fleet in the audit log.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::audit::Audit;
use crate::event::{ActorKind, AuditActor, AuditedMemberState, FleetMemberChanged};
use crate::fleet::{MemberChange, PublishedState};
use crate::shutdown::Shutdown;

/// The number of changes of the members of one key that are recorded in a minute. A member is untrusted and must not displace
/// other events.
const CHANGES_PER_MINUTE: u32 = 60;
const MINUTE: Duration = Duration::from_mins(1);

/// Counts the changes of each key. Keys without changes for a minute are forgotten.
#[derive(Debug, Default)]
struct Rates(HashMap<Arc<str>, (Instant, u32)>);

impl Rates {
    /// Whether one more change of the key is recorded.
    fn permit(&mut self, key: &Arc<str>, now: Instant) -> bool {
        self.0.retain(|_, (began, _)| now - *began < MINUTE);
        let (_, count) = self.0.entry(Arc::clone(key)).or_insert((now, 0));
        *count += 1;
        if *count == CHANGES_PER_MINUTE + 1 {
            tracing::warn!(%key, "the members of a key change their state too often; not recording more changes in this minute");
        }
        *count <= CHANGES_PER_MINUTE
    }
}

/// Runs until the drain.
pub(super) async fn record(mut changes: Receiver<MemberChange>, audit: Audit, shutdown: Shutdown) {
    let mut rates = Rates::default();
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = shutdown.drain_started() => return,
        };
        match change {
            Ok(change) if rates.permit(&change.key, Instant::now()) => append(&audit, change),
            Ok(_) => {}
            Err(RecvError::Lagged(count)) => {
                tracing::warn!(
                    count,
                    "changes of members of the fleet are not in the audit log"
                );
            }
            Err(RecvError::Closed) => return,
        }
    }
}

fn append(
    audit: &Audit,
    MemberChange {
        name,
        key,
        state,
        attempt,
        error,
    }: MemberChange,
) {
    let state = match state {
        PublishedState::Connected => AuditedMemberState::Connected,
        PublishedState::Reconnecting => AuditedMemberState::Reconnecting,
        PublishedState::Disconnected => AuditedMemberState::Disconnected,
        PublishedState::Failed => AuditedMemberState::Failed,
    };
    let actor = match state {
        AuditedMemberState::Connected | AuditedMemberState::Failed => AuditActor {
            name: Some(key.to_string()),
            ..ActorKind::Key.into()
        },
        AuditedMemberState::Reconnecting | AuditedMemberState::Disconnected => {
            ActorKind::Gateway.into()
        }
    };
    audit.append(
        actor,
        FleetMemberChanged {
            member: name,
            state,
            key: key.to_string(),
            attempt,
            error,
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_one_key_are_bounded() {
        let (mut rates, now) = (Rates::default(), Instant::now());
        let (noisy, other): (Arc<str>, Arc<str>) = ("noisy".into(), "other".into());
        let permitted = (0..1000).filter(|_| rates.permit(&noisy, now)).count();
        assert_eq!(permitted, CHANGES_PER_MINUTE as usize);
        assert!(rates.permit(&other, now), "another key has its own count");
        assert!(rates.permit(&noisy, now + MINUTE), "the count begins again");
        assert_eq!(rates.0.len(), 1);
    }
}
