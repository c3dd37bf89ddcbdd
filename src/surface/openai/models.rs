//! `/openai/v1/models`: the agents, and the models that they offered.

use axum::Json;
use serde::Serialize;

use crate::surface::chat::ModelOption;
use crate::surface::http::{AnyQuery, ApiError, ApiRequest, AppState, Authorized, CanRead, Result};
use base::types::AgentName;
use events::api::ProblemCode;
use sessions::session::{ListQuery, SessionError};

#[derive(Debug, Serialize)]
pub(super) struct Model {
    id: String,
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

const fn model(id: String) -> Model {
    Model {
        id,
        object: "model",
        created: 0,
        owned_by: "acp",
    }
}

pub(super) async fn list(request: ApiRequest<CanRead, (), AnyQuery>) -> Result<Json<ModelList>> {
    let agents = request.app.catalogue.load();
    let mut data = Vec::new();
    for agent in agents.agents() {
        data.push(model(agent.name.to_string()));
        for value in offered(&request.app, &request.by, &agent.name).await? {
            data.push(model(format!("{}/{value}", agent.name)));
        }
    }
    Ok(Json(ModelList {
        object: "list",
        data,
    }))
}

async fn offered<S>(app: &AppState, by: &Authorized<S>, agent: &AgentName) -> Result<Vec<String>> {
    let query = ListQuery {
        agent: Some(agent.clone()),
        limit: 1,
        tasks: true,
        ..ListQuery::default()
    };
    let sessions = app.sessions.list(by, &query).await?.sessions;
    let Some(newest) = sessions.first() else {
        return Ok(Vec::new());
    };
    let session = match app.open_one_session(by, newest.session_id).await {
        Ok(session) => session.snapshot().await?,
        // It was deleted meanwhile.
        Err(SessionError::NoSuchSession) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let option = ModelOption::of(session.config_options.as_deref());
    Ok(option.map(|option| option.values).unwrap_or_default())
}

pub(super) async fn get(request: ApiRequest<CanRead, String, AnyQuery>) -> Result<Json<Model>> {
    let (agent, value) = select(&request.app, &request.ids)?;
    if let Some(value) = value {
        let offered = offered(&request.app, &request.by, &agent).await?;
        if !offered.contains(&value) {
            return Err(unknown_model());
        }
    }
    Ok(Json(model(request.ids)))
}

fn unknown_model() -> ApiError {
    let detail =
        "this model does not exist: a model is the name of an agent, see /openai/v1/models";
    ApiError::new(ProblemCode::NotFound, detail)
}

pub(super) fn select(app: &AppState, id: &str) -> Result<(AgentName, Option<String>)> {
    let (name, model) = match id.split_once('/') {
        Some((name, model)) => (name, Some(model.to_owned())),
        None => (id, None),
    };
    let agent: Option<AgentName> = name.parse().ok();
    let agent = agent.filter(|name| app.catalogue.agent(name).is_some());
    Ok((agent.ok_or_else(unknown_model)?, model))
}
