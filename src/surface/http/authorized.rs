//! The authenticated principal of a request, with the scope that the route requires.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use http::request::Parts;

use crate::auth::{Admission, Credential};
use base::types::{Author, Principal, Scope};

/// The scope that a route requires. `None` accepts any key.
pub(crate) trait RequiredScope {
    const SCOPE: Option<Scope>;
}

macro_rules! required_scopes {
    ($($name:ident: $scope:expr;)*) => {$(
        #[derive(Debug, Clone)]
        pub(crate) struct $name;

        impl RequiredScope for $name {
            const SCOPE: Option<Scope> = $scope;
        }
    )*};
}

required_scopes! {
    HasKey: None;
    CanRead: Some(Scope::Read);
    CanPrompt: Some(Scope::Prompt);
    CanApprove: Some(Scope::Approve);
    CanFiles: Some(Scope::Files);
    CanFleet: Some(Scope::Fleet);
    CanMetrics: Some(Scope::Metrics);
    CanAdmin: Some(Scope::Admin);
}

#[derive(Debug, Clone)]
pub(crate) struct Authorized<S> {
    admission: Arc<Admission>,
    scope: PhantomData<fn() -> S>,
}

impl<S> Authorized<S> {
    pub(crate) fn credential(&self) -> &Credential {
        let credential = self.admission.credential.as_ref();
        credential.expect("an `Authorized` always has a credential")
    }

    pub(crate) fn author(&self) -> Author {
        self.credential().verified.author(self.admission.client)
    }

    /// The admission, for streams: a stream outlives its request and ends when its key ends.
    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    pub(crate) fn require(&self, scope: Scope) -> Result<(), AccessError> {
        if self.scopes.contains(scope) {
            Ok(())
        } else {
            Err(AccessError::MissingScope(scope))
        }
    }
}

impl<S> Deref for Authorized<S> {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.credential().verified.principal
    }
}

/// The reason why a request has no authorized principal. Each surface renders it in its own format.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AccessError {
    #[error("a protected route received a request without a key")]
    NoCredential,
    #[error("this key does not have the scope {}", .0.name())]
    MissingScope(Scope),
}

impl<S: RequiredScope> Authorized<S> {
    pub(crate) fn from_parts(parts: &Parts) -> Result<Self, AccessError> {
        let admission = parts.extensions.get::<Arc<Admission>>();
        let admission = admission.filter(|admission| admission.credential.is_some());
        let by = Self {
            admission: Arc::clone(admission.ok_or(AccessError::NoCredential)?),
            scope: PhantomData,
        };
        if let Some(scope) = S::SCOPE {
            by.require(scope)?;
        }
        Ok(by)
    }
}
