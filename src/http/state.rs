//! The state that all routes share.

use std::ops::Deref;
use std::sync::Arc;

use super::limits::{Rates, Streams};
use super::stream::Pulse;
use crate::agent::CurrentCatalogue;
use crate::auth::{Policy, Tickets};
use crate::eventlog::EventLog;
use crate::pool::Pool;
use crate::session::SessionRegistry;
use crate::shutdown::Shutdown;
use crate::types::{Epoch, Ids, Limits, PrincipalLimits};

/// The components that the composition root passes to the gateway.
#[derive(Debug)]
pub struct GatewayParts {
    pub sessions: SessionRegistry,
    pub pool: Pool,
    pub catalogue: CurrentCatalogue,
    pub policy: Arc<Policy>,
    pub tickets: Tickets,
    pub ids: Ids,
    pub log: EventLog,
    pub limits: Arc<Limits>,
    pub principal_limits: PrincipalLimits,
    pub shutdown: Shutdown,
}

/// A cheap handle to the shared state.
#[derive(Debug, Clone)]
pub struct Gateway(Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    parts: GatewayParts,
    rates: Rates,
    streams: Streams,
    pulse: Pulse,
}

impl Gateway {
    pub fn new(parts: GatewayParts) -> Self {
        let rates = Rates::new(parts.principal_limits.clone());
        let streams = Streams::new(parts.principal_limits.clone());
        let pulse = Pulse::new(&parts.limits, parts.shutdown.clone(), parts.policy.key_endings());
        Self(Arc::new(Shared { parts, rates, streams, pulse }))
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.log.epoch()
    }

    pub(super) fn rates(&self) -> &Rates {
        &self.0.rates
    }

    pub(super) fn streams(&self) -> &Streams {
        &self.0.streams
    }

    pub(super) fn pulse(&self) -> &Pulse {
        &self.0.pulse
    }
}

impl Deref for Gateway {
    type Target = GatewayParts;

    fn deref(&self) -> &GatewayParts {
        &self.0.parts
    }
}
