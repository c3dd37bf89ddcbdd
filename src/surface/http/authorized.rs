//! The authenticated principal of a request, with the scope that the route requires.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use http::request::Parts;

use crate::auth::{ActAsError, Admission, Credential};
use crate::server::RequestId;
use base::shutdown::Shutdown;
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
    request: Option<RequestId>,
    scope: PhantomData<fn() -> S>,
}

impl<S> Authorized<S> {
    pub(crate) fn credential(&self) -> &Credential {
        let credential = self.admission.credential.as_ref();
        credential.expect("an `Authorized` always has a credential")
    }

    pub(crate) fn author(&self) -> Author {
        let author = self.credential().verified.author(self.admission.client);
        Author {
            http_request_id: self.request.as_ref().map(|id| id.as_str().into()),
            ..author
        }
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
    #[error(transparent)]
    ActAs(#[from] ActAsError),
}

impl<S: RequiredScope> Authorized<S> {
    pub(crate) fn from_parts(parts: &Parts) -> Result<Self, AccessError> {
        let admission = parts.extensions.get::<Arc<Admission>>();
        let admission = admission.filter(|admission| admission.credential.is_some());
        let by = Self {
            admission: Arc::clone(admission.ok_or(AccessError::NoCredential)?),
            request: parts.extensions.get().cloned(),
            scope: PhantomData,
        };
        by.check()
    }

    /// The same for the user that a program names in its request, see [`Admission::acting_as`].
    pub(crate) async fn acting_as(
        self,
        name: Option<&str>,
        shutdown: &Shutdown,
    ) -> Result<Self, AccessError> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(self);
        };
        match self.admission.acting_as(name, shutdown).await? {
            Some(acting) => Self {
                admission: Arc::new(acting),
                ..self
            }
            .check(),
            None => Ok(self),
        }
    }

    fn check(self) -> Result<Self, AccessError> {
        if let Some(scope) = S::SCOPE {
            self.require(scope)?;
        }
        Ok(self)
    }
}
