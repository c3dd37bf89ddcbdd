//! The authenticated principal of a request, with the scope that the route requires.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::api::ProblemCode;
use crate::auth::{Admission, Credential};
use crate::surface::rest::error::ApiError;
use crate::types::{Principal, Scope};

/// The scope that a route requires. `None` accepts any key.
pub(crate) trait RequiredScope {
    const SCOPE: Option<Scope>;
}

macro_rules! required_scopes {
    ($($name:ident: $scope:expr;)*) => {$(
        #[derive(Debug)]
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
    CanAdmin: Some(Scope::Admin);
}

/// The principal of a request. It has the scope of `S`.
#[derive(Debug)]
pub(crate) struct Authorized<S> {
    admission: Arc<Admission>,
    scope: PhantomData<S>,
}

impl<S> Authorized<S> {
    pub(crate) fn credential(&self) -> &Credential {
        self.admission.credential.as_ref().expect("an `Authorized` always has a credential")
    }

    /// The admission, for streams: a stream outlives its request and ends when its key ends.
    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }
}

impl<S> Deref for Authorized<S> {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        self.credential().principal()
    }
}

impl<S: RequiredScope, G: Send + Sync> FromRequestParts<G> for Authorized<S> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self, ApiError> {
        let admission = parts.extensions.get::<Arc<Admission>>().map(Arc::clone);
        let Some(admission) = admission.filter(|admission| admission.credential.is_some()) else {
            return Err(ApiError::internal("a protected route received a request without a key"));
        };
        let by = Self { admission, scope: PhantomData };
        let Some(scope) = S::SCOPE.filter(|scope| !by.scopes.contains(*scope)) else { return Ok(by) };
        let scope = format!("{scope:?}").to_lowercase();
        Err(ApiError::new(ProblemCode::Forbidden, format!("this key does not have the scope {scope}")))
    }
}
