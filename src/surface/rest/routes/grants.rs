//! `/grants`: the access of other users to a session.

use axum::Json;
use http::StatusCode;

use super::operations::Routes;
use crate::surface::http::{
    ApiError, ApiRequest, Authorized, CanPrompt, CanRead, JsonBody, Result,
};
use base::types::{Access, Grant, Grantee, SessionId, UserId};
use events::api::{NewGrant, ProblemCode, SessionGrants};

pub(super) fn routes() -> Routes {
    routes![list_grants, put_grant, delete_grant]
}

/// Lists the users that have access to a session.
///
/// Everyone with access to the session can read the list.
#[utoipa::path(get, path = "/v1/sessions/{session}/grants", responses(
    (status = 200, body = SessionGrants, description = "The owner and the grants."),
))]
async fn list_grants(request: ApiRequest<CanRead, SessionId>) -> Result<Json<SessionGrants>> {
    let session = request.open_session().await?;
    Ok(Json(session.grants()))
}

/// Shares a session with a user, a group or all users of the tenant, or changes the access that they have.
///
/// Needs the access `own`, and a key with the scopes of the access that it gives: a key without `approve` cannot give
/// `approve` (403). A user or a group that does not exist in the tenant of the session is 422, also if another tenant has it. The
/// owner of the session is 409. A session has at most 64 grants.
#[utoipa::path(put, path = "/v1/sessions/{session}/grants/{grantee}", request_body = NewGrant, responses(
    (status = 200, body = Grant, description = "The grant. It is durable, and has an effect from now on."),
))]
async fn put_grant(
    request: ApiRequest<CanPrompt, (SessionId, String)>,
    body: JsonBody<NewGrant>,
) -> Result<Json<Grant>> {
    let session = request.open_session().await?;
    session.require(Access::Own)?;
    let access = body.value.access;
    let grantee = parse_grantee(&request.ids.1)?;
    let tenant = session.log().owner().tenant();
    let unknown = match &grantee {
        Grantee::User(name) => {
            let is_known = request
                .app
                .policy
                .keys
                .is_active(&UserId::new(&tenant, name));
            (!is_known).then(|| format!("there is no user {name}"))
        }
        Grantee::Group(name) => {
            let is_known = request.app.log().has_group(&tenant, name);
            (!is_known).then(|| format!("there is no group {name}"))
        }
        Grantee::Tenant => None,
    };
    if let Some(detail) = unknown {
        return Err(ApiError::invalid("grantee", detail));
    }
    check_scopes(&request.by, access)?;
    let author = request.by.author();
    let grant = session.grant(&author, grantee, access).await?;
    Ok(Json(grant))
}

/// Takes the access to a session back. All streams and waiting requests of users without another grant end at once.
///
/// Needs the access `own`. The owner of the session is 409.
#[utoipa::path(delete, path = "/v1/sessions/{session}/grants/{grantee}", responses(
    (status = 204, description = "The grant is removed."),
))]
async fn delete_grant(request: ApiRequest<CanPrompt, (SessionId, String)>) -> Result<StatusCode> {
    let session = request.open_session().await?;
    session.require(Access::Own)?;
    let grantee = parse_grantee(&request.ids.1)?;
    session.revoke_grant(&request.by.author(), grantee).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn parse_grantee(text: &str) -> Result<Grantee> {
    let grantee = text.parse::<Grantee>();
    grantee.map_err(|error| ApiError::invalid("grantee", error.to_string()))
}

/// A key cannot give more than it has itself.
fn check_scopes(by: &Authorized<CanPrompt>, access: Access) -> Result<()> {
    let missing = access
        .scopes()
        .iter()
        .find(|scope| !by.scopes.contains(**scope));
    let Some(scope) = missing else { return Ok(()) };
    let detail = format!(
        "the access {} needs a key with the scope {}",
        access.name(),
        scope.name()
    );
    Err(ApiError::new(ProblemCode::Forbidden, detail))
}
