//! `/v1/keys`: a user lists, makes, replaces and ends its own keys.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use super::operations::Routes;
use crate::auth::{CreateKeyError, Key, KeyText, Keys, NewOwnKey, OwnKeyError, Verified};
use crate::surface::http::{ApiError, ApiRequest, HasKey, JsonBody, Page, Result, location};
use base::types::{Author, Scope};
use events::api::{CreateKey, CreatedKey, KeyInfo, KeyList, ProblemCode};

pub(super) fn routes() -> Routes {
    routes![list_keys, create_key, rotate_key, delete_key]
}

/// Lists the keys of the user. A key with the scope `admin` lists those of all users.
///
/// Entries are sorted by the time of their creation. No entry contains the text or the hash of a key. Without `limit` the page has
/// all keys.
#[utoipa::path(get, path = "/v1/keys", responses(
    (status = 200, body = KeyList, description = "A page of keys."),
))]
async fn list_keys(request: ApiRequest<HasKey, (), Page<String>>) -> Json<KeyList> {
    let by = &request.by;
    let mut keys = request.app.policy.keys.infos();
    if !by.scopes.contains(Scope::Admin) {
        let tenant = by.user.tenant();
        keys.retain(|key| key.user == by.user.name() && key.tenant == tenant.as_str());
    }
    for key in &mut keys {
        key.is_current = Some(key.key_id == by.credential().verified.key.as_str());
    }
    // The key of the configuration has no time and is the first one.
    let position = |key: &KeyInfo| {
        let created_at = key.created_at.map(|time| time.to_string());
        format!("{}.{}", created_at.unwrap_or_default(), key.key_id)
    };
    let (keys, next_cursor) = request.params.select(keys, position);
    Json(KeyList { keys, next_cursor })
}

/// Makes a key of the user of the request. The response is the only one with its text.
///
/// The new key cannot have more than the key of the request: a scope that this one lacks, or a later end, is 403, and `detail` names
/// it. A user has at most 50 keys. Keys of a program that acts for the user, and local keys, make none (403).
#[utoipa::path(post, path = "/v1/keys", request_body = CreateKey, responses(
    (status = 201, body = CreatedKey, description = "The key."),
))]
async fn create_key(request: ApiRequest<HasKey>, body: JsonBody<CreateKey>) -> Result<Response> {
    let CreateKey {
        name,
        scopes,
        expires_at,
    } = body.value;
    let new = NewOwnKey {
        name,
        scopes: scopes.map(|scopes| scopes.into_iter().collect()),
        expires_at,
    };
    respond(request, move |keys, author, by| {
        keys.create_own(author, by, &new)
    })
    .await
}

/// Gives a key of the user a new text. The previous text is not valid any more, and its streams end.
///
/// The new key has another id, and the same name, scopes and end. Only named keys can be replaced. A key with a scope that the key of
/// the request lacks is 403, and so is a key that ends later.
#[utoipa::path(post, path = "/v1/keys/{key}/rotate", responses(
    (status = 201, body = CreatedKey, description = "The new key."),
))]
async fn rotate_key(request: ApiRequest<HasKey, String>) -> Result<Response> {
    let id = request.ids.clone();
    respond(request, move |keys, author, by| {
        keys.rotate_own(author, by, &id)
    })
    .await
}

/// Revokes a key of the user. Its streams end within a second.
///
/// A key with a scope that the key of the request lacks is 403.
#[utoipa::path(delete, path = "/v1/keys/{key}", responses(
    (status = 204, description = "The key is revoked."),
))]
async fn delete_key(request: ApiRequest<HasKey, String>) -> Result<StatusCode> {
    let id = request.ids.clone();
    change(&request, move |keys, author, by| {
        keys.revoke_own(author, by, &id)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn respond<I>(
    request: ApiRequest<HasKey, I>,
    make: impl FnOnce(&Keys, &Author, &Verified) -> Result<(KeyText, Key), OwnKeyError> + Send + 'static,
) -> Result<Response> {
    let (text, key) = change(&request, make).await?;
    let info = request.app.policy.keys.info(&key);
    let location = location(format!("/v1/keys/{}", info.key_id));
    let created = CreatedKey {
        info,
        key: text.expose().to_owned(),
    };
    Ok((StatusCode::CREATED, location, Json(created)).into_response())
}

async fn change<I, T: Send + 'static>(
    request: &ApiRequest<HasKey, I>,
    work: impl FnOnce(&Keys, &Author, &Verified) -> Result<T, OwnKeyError> + Send + 'static,
) -> Result<T> {
    let keys = request.app.policy.keys.clone();
    let author = request.by.author();
    let by = request.by.credential().verified.clone();
    let changed = request
        .app
        .shutdown
        .spawn_blocking(move || work(&keys, &author, &by));
    let changed = changed.await.map_err(ApiError::internal)?;
    changed.map_err(failed)
}

fn failed(error: OwnKeyError) -> ApiError {
    let detail = error.to_string();
    match error {
        OwnKeyError::Acting
        | OwnKeyError::Local
        | OwnKeyError::Scopes(_)
        | OwnKeyError::EndsLater(_)
        | OwnKeyError::MemberNames => ApiError::new(ProblemCode::Forbidden, detail),
        OwnKeyError::NotFound => ApiError::not_found(),
        OwnKeyError::Ended => ApiError::invalid("/expiresAt", detail),
        OwnKeyError::NotNamed => ApiError::invalid("key", detail),
        OwnKeyError::Create(CreateKeyError::NoScope) => ApiError::invalid("/scopes", detail),
        OwnKeyError::TooMany(_) | OwnKeyError::Create(CreateKeyError::TooMany(_)) => {
            ApiError::invalid("", detail)
        }
        OwnKeyError::Create(
            CreateKeyError::Name | CreateKeyError::Reserved(_) | CreateKeyError::Owner,
        ) => ApiError::invalid("/name", detail),
        OwnKeyError::Create(error) => ApiError::internal(error),
        OwnKeyError::Store(error) => ApiError::internal(error),
    }
}
