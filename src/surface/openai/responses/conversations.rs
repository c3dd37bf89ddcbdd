//! `/openai/v1/conversations`: sessions under the id `conv_<session>`.

use axum::Json;
use axum::extract::{Path, Query, Request, State};
use http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::items::TurnItems;
use crate::surface::chat::{create_session, read_json};
use crate::surface::http::{ApiError, Authorized, CanPrompt, CanRead, Gateway, trace_context};
use crate::surface::openai::models;
use base::types::{AgentName, Principal, PromptId, SessionId};
use events::api::ProblemCode;
use sessions::session::SessionHandle;

const DEFAULT_ITEMS: usize = 20;
const MAX_ITEMS: usize = 100;

const MODEL: &str = "model";

#[derive(Debug, Deserialize)]
pub(in crate::surface::openai) struct ConversationBody {
    metadata: Option<Map<String, Value>>,
    items: Option<Vec<Value>>,
}

fn unknown_conversation() -> ApiError {
    ApiError::new(
        ProblemCode::NotFound,
        "this conversation does not exist, or this key has no access to it",
    )
}

async fn open(gateway: &Gateway, by: &Principal, id: &str) -> Result<SessionHandle, ApiError> {
    let id = id
        .strip_prefix("conv_")
        .and_then(|id| id.parse::<SessionId>().ok());
    Ok(gateway
        .sessions
        .open(by, id.ok_or_else(unknown_conversation)?)
        .await?)
}

async fn conversation(session: &SessionHandle) -> Result<Json<Value>, ApiError> {
    let snapshot = session.snapshot().await?;
    let created_at = snapshot.created_at.as_millis() / 1000;
    Ok(Json(json!({
        "id": format!("conv_{}", session.id()), "object": "conversation", "created_at": created_at,
        "metadata": snapshot.metadata,
    })))
}

/// Creates a session of the agent that `metadata.model` names. A gateway with one agent needs no name.
pub(in crate::surface::openai) async fn create(
    State(gateway): State<Gateway>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let (by, parts, body) = read_json::<CanPrompt, ConversationBody>(&gateway, request).await?;
    if body.items.is_some_and(|items| !items.is_empty()) {
        let detail = "a conversation begins without items; send them as the input of a response";
        return Err(ApiError::invalid("/items", detail));
    }
    let agent = agent_of(&gateway, body.metadata.as_ref())?;
    let trace = trace_context(&parts.headers);
    let session = create_session(&gateway, &by, agent, body.metadata, trace).await?;
    conversation(&session).await
}

fn agent_of(
    gateway: &Gateway,
    metadata: Option<&Map<String, Value>>,
) -> Result<AgentName, ApiError> {
    if let Some(model) = metadata.and_then(|metadata| metadata.get(MODEL)) {
        let (agent, _) = models::select(gateway, model.as_str().unwrap_or_default())?;
        return Ok(agent);
    }
    let agents = gateway.catalogue.load();
    let mut names = agents.agents().map(|agent| agent.name.clone());
    match (names.next(), names.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(ApiError::invalid(
            "/metadata/model",
            "expected the name of an agent, see /openai/v1/models",
        )),
    }
}

pub(in crate::surface::openai) async fn get(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let by = Authorized::<CanRead>::from_parts(&request.into_parts().0)?;
    conversation(&open(&gateway, &by, &id).await?).await
}

pub(in crate::surface::openai) async fn delete(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let (parts, _) = request.into_parts();
    let by = Authorized::<CanPrompt>::from_parts(&parts)?;
    open(&gateway, &by, &id)
        .await?
        .delete(&by, None, trace_context(&parts.headers))
        .await?;
    Ok(Json(
        json!({ "id": id, "object": "conversation.deleted", "deleted": true }),
    ))
}

/// A page of the items: `?order=asc|desc&after=ITEM&limit=N`, newest first by default.
#[derive(Debug)]
struct ItemQuery {
    ascending: bool,
    after: Option<String>,
    limit: usize,
}

impl ItemQuery {
    fn parse(uri: &Uri) -> Result<Self, ApiError> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
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
                ("limit", number) => {
                    let limit = number
                        .parse()
                        .ok()
                        .filter(|limit| (1..=MAX_ITEMS).contains(limit));
                    parsed.limit =
                        limit.ok_or_else(|| ApiError::invalid("", "limit must be 1 to 100"))?;
                }
                _ => {}
            }
        }
        Ok(parsed)
    }
}

pub(in crate::surface::openai) async fn items(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let (parts, _) = request.into_parts();
    let by = Authorized::<CanRead>::from_parts(&parts)?;
    let query = ItemQuery::parse(&parts.uri)?;
    let session = open(&gateway, &by, &id).await?;
    let agent = session.snapshot().await?.agent.to_string();
    let newest = session
        .query()
        .prompts(None, 1)
        .await?
        .prompts
        .first()
        .map_or(0, |turn| turn.prompt_id.number());
    let (mut found, mut passed) = (Vec::new(), query.after.is_none());
    for step in 1..=newest {
        let prompt = PromptId::new(if query.ascending {
            step
        } else {
            newest + 1 - step
        });
        let Some(range) = session.query().prompt_range(prompt).await? else {
            continue;
        };
        let mut items = TurnItems::read(&session, (prompt, range), &agent)
            .await?
            .all();
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
    let (first_id, last_id) = (id(items.first()), id(items.last()));
    json!({ "object": "list", "data": items, "first_id": first_id, "last_id": last_id, "has_more": has_more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_of_items_has_limits() {
        let parse =
            |query: &str| ItemQuery::parse(&format!("/items?{query}").parse().expect("a path"));
        let query = parse("order=asc&after=msg_1%202&limit=3&include=x").expect("a query");
        assert_eq!(
            (query.ascending, query.after.as_deref(), query.limit),
            (true, Some("msg_1 2"), 3)
        );
        for wrong in ["limit=0", "limit=101", "order=up"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
