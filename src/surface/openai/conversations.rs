//! `/openai/v1/conversations`: sessions under the id `conv_<session>`.

use axum::Json;
use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::items::TurnItems;
use super::models;
use crate::surface::chat::create_session;
use crate::surface::http::{
    AnyQuery, ApiError, ApiRequest, AppState, Authorized, CanPrompt, CanRead, JsonBody, Result,
    WholeHistory,
};
use base::types::{AgentName, PromptId};
use events::api::ProblemCode;
use sessions::session::SessionHandle;

const DEFAULT_ITEMS: usize = 20;
const MAX_ITEMS: usize = 100;

const MODEL: &str = "model";

#[derive(Debug, Deserialize)]
pub(super) struct ConversationBody {
    metadata: Option<Map<String, Value>>,
    items: Option<Vec<Value>>,
}

fn unknown_conversation() -> ApiError {
    ApiError::new(
        ProblemCode::NotFound,
        "this conversation does not exist, or this key has no access to it",
    )
}

async fn open<S>(app: &AppState, by: &Authorized<S>, id: &str) -> Result<SessionHandle> {
    let id = id.strip_prefix("conv_").and_then(|id| id.parse().ok());
    let session = app.open_session(by, id.ok_or_else(unknown_conversation)?);
    Ok(session.await?)
}

async fn conversation(session: &SessionHandle) -> Result<Json<Value>> {
    let snapshot = session.snapshot().await?;
    let created_at = snapshot.created_at.as_millis() / 1000;
    Ok(Json(json!({
        "id": format!("conv_{}", session.id()), "object": "conversation", "created_at": created_at,
        "metadata": snapshot.metadata,
    })))
}

/// Creates a session of the agent that `metadata.model` names. A gateway with one agent needs no name.
pub(super) async fn create(
    request: ApiRequest<CanPrompt, (), AnyQuery>,
    body: JsonBody<ConversationBody, WholeHistory>,
) -> Result<Json<Value>> {
    let app = request.app;
    let body = body.value;
    if body.items.is_some_and(|items| !items.is_empty()) {
        let detail = "a conversation begins without items; send them as the input of a response";
        return Err(ApiError::invalid("/items", detail));
    }
    let agent = agent_of(&app, body.metadata.as_ref())?;
    let session = create_session(&app, &request.by, agent, body.metadata, request.trace);
    conversation(&session.await?).await
}

fn agent_of(app: &AppState, metadata: Option<&Map<String, Value>>) -> Result<AgentName> {
    if let Some(model) = metadata.and_then(|metadata| metadata.get(MODEL)) {
        let (agent, _) = models::select(app, model.as_str().unwrap_or_default())?;
        return Ok(agent);
    }
    let agents = app.catalogue.load();
    let mut names = agents.agents().map(|agent| agent.name.clone());
    match (names.next(), names.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(ApiError::invalid(
            "/metadata/model",
            "expected the name of an agent, see /openai/v1/models",
        )),
    }
}

pub(super) async fn get(request: ApiRequest<CanRead, String, AnyQuery>) -> Result<Json<Value>> {
    let session = open(&request.app, &request.by, &request.ids).await?;
    conversation(&session).await
}

pub(super) async fn delete(
    request: ApiRequest<CanPrompt, String, AnyQuery>,
) -> Result<Json<Value>> {
    let id = request.ids;
    let session = open(&request.app, &request.by, &id).await?;
    session
        .delete(&request.by, &request.by.author(), None, request.trace)
        .await?;
    Ok(Json(
        json!({ "id": id, "object": "conversation.deleted", "deleted": true }),
    ))
}

/// A page of the items: `?order=asc|desc&after=ITEM&limit=N`, newest first by default.
#[derive(Debug)]
pub(super) struct ItemQuery {
    ascending: bool,
    after: Option<String>,
    limit: usize,
}

impl<G: Send + Sync> FromRequestParts<G> for ItemQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let Query(pairs) = pairs.map_err(|error| ApiError::invalid("", error.body_text()))?;
        let mut parsed = Self {
            ascending: false,
            after: None,
            limit: DEFAULT_ITEMS,
        };
        for (name, value) in pairs {
            match (&*name, &*value) {
                ("order", "asc") => parsed.ascending = true,
                ("order", "desc") => parsed.ascending = false,
                ("order", _) => return Err(ApiError::invalid("", "order must be asc or desc")),
                ("after", id) => parsed.after = Some(id.to_owned()),
                ("limit", number) => match number.parse() {
                    Ok(limit) if (1..=MAX_ITEMS).contains(&limit) => parsed.limit = limit,
                    _ => return Err(ApiError::invalid("", "limit must be 1 to 100")),
                },
                _ => {}
            }
        }
        Ok(parsed)
    }
}

pub(super) async fn items(request: ApiRequest<CanRead, String, ItemQuery>) -> Result<Json<Value>> {
    let query = request.params;
    let session = open(&request.app, &request.by, &request.ids).await?;
    let agent = session.snapshot().await?.agent.to_string();
    let newest = session.query().prompts(None, 1).await?.prompts;
    let newest = newest.first().map_or(0, |turn| turn.prompt_id.number());
    let mut found = Vec::new();
    let mut passed = query.after.is_none();
    for step in 1..=newest {
        let prompt = PromptId::new(if query.ascending {
            step
        } else {
            newest + 1 - step
        });
        let Some(range) = session.query().prompt_range(prompt).await? else {
            continue;
        };
        let items = TurnItems::read(&session, prompt, range, &agent).await?;
        let mut items = items.all();
        if !query.ascending {
            items.reverse();
        }
        for item in items {
            if passed {
                found.push(item);
            } else {
                passed = item["id"].as_str() == query.after.as_deref();
            }
        }
        if found.len() > query.limit {
            break;
        }
    }
    if !passed {
        let detail = "after must be the id of an item of this conversation";
        return Err(ApiError::invalid("", detail));
    }
    let has_more = found.len() > query.limit;
    found.truncate(query.limit);
    Ok(Json(list(&found, has_more)))
}

pub(super) fn list(items: &[Value], has_more: bool) -> Value {
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    json!({
        "object": "list", "data": items, "first_id": id(items.first()), "last_id": id(items.last()),
        "has_more": has_more,
    })
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[tokio::test]
    async fn query_of_items_has_limits() {
        let parse = async |query: &str| {
            let request = Request::get(format!("/items?{query}")).body(()).unwrap();
            ItemQuery::from_request_parts(&mut request.into_parts().0, &()).await
        };
        let query = parse("order=asc&after=msg_1%202&limit=3&include=x").await;
        let query = query.expect("a query");
        assert_eq!(
            (query.ascending, query.after.as_deref(), query.limit),
            (true, Some("msg_1 2"), 3)
        );
        for wrong in ["limit=0", "limit=101", "order=up"] {
            assert!(parse(wrong).await.is_err(), "{wrong}");
        }
    }
}
