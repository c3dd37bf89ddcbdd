//! The state of the surface: that of all surfaces, and the open connections.

use std::ops::Deref;
use std::sync::Arc;

use super::connection::Connections;
use crate::surface::http;

#[derive(Clone, derive_more::Debug)]
#[debug("Gateway")]
pub(super) struct Gateway {
    shared: http::Gateway,
    connections: Arc<Connections>,
}

impl Gateway {
    pub(super) fn new(shared: http::Gateway) -> Self {
        Self {
            shared,
            connections: Arc::default(),
        }
    }

    pub(super) fn acp(&self) -> &Connections {
        &self.connections
    }
}

impl Deref for Gateway {
    type Target = http::Gateway;

    fn deref(&self) -> &http::Gateway {
        &self.shared
    }
}
