//! The handlers of the API by path, and the descriptions of their operations.

use axum::Router;
use axum::handler::Handler;
use axum::routing::MethodRouter;
use utoipa::openapi::OpenApi;
use utoipa_axum::PathItemExt as _;
use utoipa_axum::router::OpenApiRouter;

use crate::surface::http::AppState;

/// Routes, each with its operation, so the OpenAPI document lists every route.
#[derive(Default)]
pub(in crate::surface::rest) struct Routes {
    router: Router<AppState>,
    /// Each adds the description of one operation. All of them together take half of the start time of the gateway, so they run only
    /// for a client that reads the document.
    operations: Vec<AddOperation>,
}

type AddOperation = fn(OpenApiRouter<AppState>) -> OpenApiRouter<AppState>;

impl Routes {
    pub(super) fn add<P, H, T>(mut self, handler: &H, operation: AddOperation) -> Self
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

    pub(super) fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.operations.extend(other.operations);
        self
    }

    pub(in crate::surface::rest) fn into_router(self) -> Router<AppState> {
        self.router
    }

    pub(in crate::surface::rest) fn into_openapi(self) -> OpenApi {
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
            Routes::default()$(.add::<[<__path_ $handler>], _, _>(&$handler, |all| all.routes(utoipa_axum::routes!($handler))))+
        }
    };
}
