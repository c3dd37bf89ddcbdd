//! The handlers of the API, one file for each resource, which registers its own routes.
//!
//! A handler extracts and checks its input, calls the session registry, the pool or the event log, and
//! encodes the response. The `utoipa` attributes and doc comments of the handlers and
//! `../openapi/document.json` are the OpenAPI document.
//! Routes must not know connections, streams' back-pressure or the store. Begin with `sessions`, then
//! `prompts` and `events`.

use axum::Router;
use axum::handler::Handler;
use axum::routing::MethodRouter;
use utoipa::openapi::OpenApi;
use utoipa_axum::PathItemExt as _;
use utoipa_axum::router::OpenApiRouter;

use crate::surface::http::AppState;

/// Routes, each with its operation, so the OpenAPI document lists every route.
#[derive(Default)]
pub(super) struct Routes {
    router: Router<AppState>,
    /// Each adds the description of one operation. All of them together take half of the start time of the gateway, so they run only
    /// for a client that reads the document.
    operations: Vec<AddOperation>,
}

type AddOperation = fn(OpenApiRouter<AppState>) -> OpenApiRouter<AppState>;

impl Routes {
    fn add<P, H, T>(mut self, handler: H, operation: AddOperation) -> Self
    where
        P: utoipa::Path,
        H: Handler<T, AppState>,
        T: 'static,
    {
        for method in P::methods() {
            let route = MethodRouter::new().on(method.to_method_filter(), handler.clone());
            self.router = self.router.route(&P::path(), route);
        }
        self.operations.push(operation);
        self
    }

    fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.operations.extend(other.operations);
        self
    }

    pub(super) fn into_router(self) -> Router<AppState> {
        self.router
    }

    pub(super) fn into_openapi(self) -> OpenApi {
        let operations = self.operations.into_iter();
        operations
            .fold(OpenApiRouter::new(), |all, add| add(all))
            .into_openapi()
    }
}

/// The routes of these handlers.
macro_rules! routes {
    ($($handler:ident),+ $(,)?) => {
        utoipa_axum::paste! {
            Routes::default()$(.add::<[<__path_ $handler>], _, _>($handler, |all| all.routes(utoipa_axum::routes!($handler))))+
        }
    };
}

mod admin;
mod agents;
mod events;
mod files;
mod fleet;
mod gateway;
mod metrics;
mod prompts;
mod requests;
mod sessions;
mod tasks;
mod transcript;
mod webhooks;

/// The routes that the OpenAPI document describes.
pub(super) fn api_routes() -> Routes {
    Routes::default()
        .merge(gateway::routes())
        .merge(metrics::routes())
        .merge(admin::routes())
        .merge(agents::routes())
        .merge(sessions::routes())
        .merge(prompts::routes())
        .merge(events::routes())
        .merge(requests::routes())
        .merge(transcript::routes())
        .merge(files::routes())
        .merge(fleet::routes())
        .merge(tasks::routes())
        .merge(webhooks::routes())
}
