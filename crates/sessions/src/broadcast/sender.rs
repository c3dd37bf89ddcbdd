//! The sender: one broadcast from its request to its report, and the rate of a user.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use super::delivery::{Broadcast, Parts};
use super::selection::{Reachable, Selection, Target};
use crate::session::{ClaimError, IdempotencyKey, Responded, SessionError, ToProblem};
use base::shutdown::lock_or_abort;
use base::types::{Author, Principal, UserId};
use events::api::{
    BroadcastForm, BroadcastNotReached, BroadcastReached, BroadcastReason, BroadcastReport,
    CreateBroadcast, Problem, ProblemCode,
};
use events::event::BroadcastSent;
use wire::acp::TraceContext;
use wire::fleet::MemberState;

pub const MAX_CONTENT_BYTES: usize = 64 << 10;
pub const MAX_TARGETS: usize = 1000;
const CONCURRENCY: usize = 64;

#[derive(Debug, Clone, thiserror::Error)]
pub enum BroadcastError {
    #[error("the broadcast has {0} targets (limit {MAX_TARGETS}); select fewer of them")]
    TooManyTargets(usize),
    #[error("too many broadcasts (limit {PER_MINUTE} in a minute)")]
    Rate { retry_after: Duration },
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl ToProblem for BroadcastError {
    fn problem(&self) -> Problem {
        match self {
            Self::TooManyTargets(_) => Problem::invalid("/to", self.to_string()),
            Self::Rate { retry_after } => {
                Problem::transient(ProblemCode::RateLimited, self.to_string(), *retry_after)
            }
            Self::Claim(error) => error.problem(),
            Self::Session(error) => error.problem(),
        }
    }
}

#[derive(Clone)]
pub struct Broadcasts {
    parts: Parts,
    rate: Arc<Rate>,
}

impl Broadcasts {
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            rate: Arc::default(),
        }
    }

    /// Sends a broadcast and returns its report, or the report of an earlier request with the same idempotency key. The
    /// broadcast continues if the caller is dropped.
    pub async fn send(
        &self,
        by: &Principal,
        author: Author,
        request: CreateBroadcast,
        key: Option<IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<Responded<BroadcastReport>, BroadcastError> {
        let sender = self.clone();
        let from = by.clone();
        let derived = key.clone();
        let send = async move || sender.send_new(from, author, request, derived, trace).await;
        let context = self.parts.sessions.context();
        context.respond_once(by, key, send).await
    }

    async fn send_new(
        &self,
        by: Principal,
        author: Author,
        request: CreateBroadcast,
        key: Option<IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<BroadcastReport, BroadcastError> {
        let form = request.form;
        let reachable = self.reachable(&by);
        let targets = Selection::targets(&request.to, form, &reachable);
        if targets.len() > MAX_TARGETS {
            return Err(BroadcastError::TooManyTargets(targets.len()));
        }
        self.rate
            .count(by.user.clone())
            .map_err(|retry_after| BroadcastError::Rate { retry_after })?;
        let broadcast = Broadcast {
            id: self.parts.ids.uuid(),
            kind: request.kind,
            content: request.content,
            by,
            at: self.parts.ids.now(),
            trace,
            key,
        };
        let mut seen = HashSet::new();
        let deliveries: Vec<_> = targets
            .iter()
            .filter_map(|(_, destination)| destination.as_ref().ok())
            .filter(|destination| seen.insert(*destination))
            .map(|destination| async {
                let delivered = self.parts.deliver(&broadcast, destination, &reachable);
                (destination.clone(), delivered.await)
            })
            .collect();
        let outcomes: HashMap<_, _> = stream::iter(deliveries)
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let mut report = BroadcastReport {
            id: broadcast.id,
            kind: broadcast.kind,
            reached: Vec::new(),
            not_reached: Vec::new(),
        };
        for (target, destination) in targets {
            let outcome = match destination {
                Ok(destination) => outcomes[&destination].clone(),
                Err(reason) => Err(self.missing(&broadcast.by, &target, reason).await.into()),
            };
            match outcome {
                Ok(delivered) => report.reached.push(BroadcastReached {
                    kind: target.kind,
                    name: target.name,
                    agent_id: target.process,
                    session_id: target.session,
                    prompt_id: delivered.prompt,
                    delivery: delivered.how,
                }),
                Err(undelivered) => report.not_reached.push(BroadcastNotReached {
                    kind: target.kind,
                    name: target.name,
                    agent_id: target.process,
                    session_id: target.session,
                    reason: undelivered.reason,
                    detail: undelivered.detail,
                }),
            }
        }
        self.audit(&author, &report, form);
        Ok(report)
    }

    /// Distinguishes a session without a process from an unknown one. A session of another user is unknown.
    async fn missing(
        &self,
        by: &Principal,
        target: &Target,
        reason: BroadcastReason,
    ) -> BroadcastReason {
        let Some(session) = target.session else {
            return reason;
        };
        match self.parts.sessions.has_session(by, session).await {
            Ok(false) => BroadcastReason::Unknown,
            Ok(true) | Err(_) => reason,
        }
    }

    fn reachable(&self, by: &Principal) -> Reachable {
        let parts = &self.parts;
        let catalogue = parts.catalogue.load();
        let members = parts.fleet.status().into_iter();
        let is_connected = |state| state == MemberState::Connected;
        Reachable {
            processes: parts.pool.processes_of(&by.user, None),
            cca_members: parts.cca.connected(&by.user.tenant()),
            agents: catalogue.agents().map(|spec| spec.name.clone()).collect(),
            members: members
                .map(|member| (member.name, is_connected(member.state)))
                .collect(),
        }
    }

    fn audit(&self, author: &Author, report: &BroadcastReport, form: BroadcastForm) {
        let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
        let event = BroadcastSent {
            broadcast_id: report.id.to_string(),
            broadcast_type: report.kind.into_str().to_owned(),
            form: form.into_str().to_owned(),
            reached: count(report.reached.len()),
            not_reached: count(report.not_reached.len()),
        };
        self.parts.audit.append(author, event);
    }
}

pub(super) const PER_MINUTE: usize = 6;
const WINDOW: Duration = Duration::from_mins(1);

/// The times of the latest broadcasts of each user. A user without one in the last minute has no entry.
#[derive(Default)]
pub(super) struct Rate(Mutex<HashMap<UserId, VecDeque<Instant>>>);

impl Rate {
    pub(super) fn count(&self, principal: UserId) -> Result<(), Duration> {
        let now = Instant::now();
        let mut latest = lock_or_abort(self.0.lock());
        latest.retain(|_, times| {
            while times.pop_front_if(|time| now - *time >= WINDOW).is_some() {}
            !times.is_empty()
        });
        let times = latest.entry(principal).or_default();
        if times.len() >= PER_MINUTE {
            return Err(WINDOW.saturating_sub(now - times[0]));
        }
        times.push_back(now);
        Ok(())
    }
}

#[cfg(test)]
mod rate_tests {
    use super::*;
    use base::types::Tenant;

    #[tokio::test(start_paused = true)]
    async fn each_principal_has_six_in_any_minute() {
        let rate = Rate::default();
        let of = |name: &str| UserId::new(&Tenant::default(), name);
        for _ in 0..PER_MINUTE {
            assert_eq!(rate.count(of("alice")), Ok(()));
            tokio::time::advance(Duration::from_secs(5)).await;
        }
        assert_eq!(rate.count(of("alice")), Err(Duration::from_secs(30)));
        assert_eq!(rate.count(of("bob")), Ok(()));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(rate.count(of("alice")), Ok(()));
        assert_eq!(rate.count(of("alice")), Err(Duration::from_secs(5)));
    }
}
