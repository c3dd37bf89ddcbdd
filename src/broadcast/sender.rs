//! The sender: one broadcast from its request to its report.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;

use super::delivery::{Delivered, Request, Undelivered};
use super::message::Broadcast;
use super::parts::Parts;
use super::rate::{PER_MINUTE, Rate};
use super::selection::{Reachable, Selection, Target};
use crate::acp::TraceContext;
use crate::api::{
    BroadcastForm, BroadcastNotReached, BroadcastReached, BroadcastReason, BroadcastReport,
    CreateBroadcast,
};
use crate::event::BroadcastSent;
use crate::fleet::MemberState;
use crate::session::{ClaimError, IdempotencyKey, Responded, SessionError};
use crate::types::{Author, Principal};

/// The size of the content.
pub const MAX_CONTENT_BYTES: usize = 64 << 10;
/// The number of targets of a broadcast.
pub const MAX_TARGETS: usize = 1000;
/// The number of destinations that get the message at the same time.
const CONCURRENCY: usize = 64;

/// Why a broadcast was not sent.
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

/// Sends broadcasts. The type is a cheap handle.
#[derive(Debug, Clone)]
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
        (by, author): (&Principal, Author),
        request: CreateBroadcast,
        key: Option<IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<Responded<BroadcastReport>, BroadcastError> {
        let (sender, from) = (self.clone(), by.clone());
        let derived = key.clone();
        let send = async move || {
            sender
                .send_new((from, author), request, derived, trace)
                .await
        };
        self.parts
            .sessions
            .context()
            .respond_once(by, key, send)
            .await
    }

    async fn send_new(
        &self,
        (by, author): (Principal, Author),
        request: CreateBroadcast,
        key: Option<IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<BroadcastReport, BroadcastError> {
        let CreateBroadcast {
            kind,
            content,
            to,
            form,
        } = request;
        let selection = Selection::new(&to, form, &self.reachable(&by));
        if selection.targets.len() > MAX_TARGETS {
            return Err(BroadcastError::TooManyTargets(selection.targets.len()));
        }
        self.rate
            .count(by.key())
            .map_err(|retry_after| BroadcastError::Rate { retry_after })?;
        let (id, at) = (self.parts.ids.uuid(), self.parts.ids.now());
        let broadcast = Broadcast {
            id,
            kind,
            content,
            from: Arc::clone(&by.id),
            at,
        };
        let request = Arc::new(Request {
            broadcast,
            by,
            trace,
            key,
        });
        let deliveries = selection.destinations.into_iter().map(|destination| {
            let (parts, request) = (self.parts.clone(), Arc::clone(&request));
            async move { parts.deliver(&request, destination).await }
        });
        let outcomes: Vec<_> = stream::iter(deliveries)
            .buffered(CONCURRENCY)
            .collect()
            .await;
        let mut report = BroadcastReport {
            id,
            kind,
            reached: Vec::new(),
            not_reached: Vec::new(),
        };
        for (target, position) in selection.targets {
            let outcome = match position {
                Ok(position) => outcomes[position].clone(),
                Err(reason) => Err(self.missing(&request.by, &target, reason).await.into()),
            };
            match outcome {
                Ok(delivered) => report.reached.push(reached(target, delivered)),
                Err(undelivered) => report.not_reached.push(not_reached(target, undelivered)),
            }
        }
        self.audit(&author, &report, form);
        Ok(report)
    }

    /// Distinguishes a session without a process from an unknown one. A session of another tenant is unknown.
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
        let Parts {
            pool,
            catalogue,
            fleet,
            cca,
            ..
        } = &self.parts;
        Reachable {
            processes: pool.processes(&by.tenant, None),
            cca_members: cca.connected(&by.tenant),
            agents: catalogue
                .load()
                .agents()
                .map(|spec| spec.name.clone())
                .collect(),
            members: fleet
                .status()
                .into_iter()
                .map(|member| (member.name, member.state == MemberState::Connected))
                .collect(),
        }
    }

    fn audit(&self, author: &Author, report: &BroadcastReport, form: BroadcastForm) {
        let count = |items: usize| u64::try_from(items).unwrap_or(u64::MAX);
        let event = BroadcastSent {
            broadcast_id: report.id.to_string(),
            broadcast_type: report.kind.as_str().to_owned(),
            form: form.as_str().to_owned(),
            reached: count(report.reached.len()),
            not_reached: count(report.not_reached.len()),
        };
        self.parts.audit.append(author, event);
    }
}

fn reached(target: Target, Delivered { how, prompt }: Delivered) -> BroadcastReached {
    let Target {
        kind,
        name,
        process,
        session,
    } = target;
    BroadcastReached {
        kind,
        name,
        agent_id: process,
        session_id: session,
        prompt_id: prompt,
        delivery: how,
    }
}

fn not_reached(target: Target, Undelivered { reason, detail }: Undelivered) -> BroadcastNotReached {
    let Target {
        kind,
        name,
        process,
        session,
    } = target;
    BroadcastNotReached {
        kind,
        name,
        agent_id: process,
        session_id: session,
        reason,
        detail,
    }
}
