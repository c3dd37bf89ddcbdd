//! `/openai/v1/models`: the agents.

use axum::Json;
use axum::extract::{Path, Request, State};
use serde::Serialize;

use crate::api::ProblemCode;
use crate::surface::authorized::{Authorized, CanRead};
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;
use crate::types::AgentName;

#[derive(Debug, Serialize)]
pub(super) struct Model {
    id: AgentName,
    object: &'static str,
    /// The API requires a time. An entry of the configuration has none.
    created: u64,
    owned_by: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct ModelList {
    object: &'static str,
    data: Vec<Model>,
}

const fn model(id: AgentName) -> Model {
    Model { id, object: "model", created: 0, owned_by: "acp" }
}

pub(super) async fn list(
    State(gateway): State<Gateway>,
    request: Request,
) -> Result<Json<ModelList>, ApiError> {
    Authorized::<CanRead>::from_parts(&request.into_parts().0)?;
    let agents = gateway.catalogue.load();
    let data = agents.agents().map(|agent| model(agent.name.clone())).collect();
    Ok(Json(ModelList { object: "list", data }))
}

pub(super) async fn get(
    State(gateway): State<Gateway>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Model>, ApiError> {
    Authorized::<CanRead>::from_parts(&request.into_parts().0)?;
    let (agent, _) = select(&gateway, &id)?;
    Ok(Json(model(agent)))
}

/// The agent of a model id, and the model of the agent: `agent` or `agent/model`.
pub(super) fn select(gateway: &Gateway, id: &str) -> Result<(AgentName, Option<String>), ApiError> {
    let (name, model) = match id.split_once('/') {
        Some((name, model)) => (name, Some(model.to_owned())),
        None => (id, None),
    };
    let agent = name.parse::<AgentName>().ok().filter(|name| gateway.catalogue.agent(name).is_some());
    let detail = "this model does not exist: a model is the name of an agent, see /openai/v1/models";
    let agent = agent.ok_or_else(|| ApiError::new(ProblemCode::NotFound, detail))?;
    Ok((agent, model))
}
