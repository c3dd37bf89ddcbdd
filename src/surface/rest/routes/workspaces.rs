//! `/v1/workspaces`: the folders in which sessions can work.

use std::path::Path;

use axum::Json;

use crate::surface::http::{ApiError, ApiRequest, CanPrompt, Page, Params};
use events::api::{ProblemCode, WorkspaceFolder, WorkspaceFolderList};
use workspace::{FileError, FolderPage};

/// Lists folders in which a new session can work.
///
/// Without `path`, lists the workspace roots and the folders that were granted to the key. With `path`, lists the folders
/// in a folder below one of them, sorted by name. Links, hidden folders, and folders that the gateway created for sessions
/// are omitted.
#[utoipa::path(get, path = "/v1/workspaces", responses(
    (status = 200, body = WorkspaceFolderList, description = "A page of folders."),
))]
pub(super) async fn list_workspaces(
    mut request: ApiRequest<CanPrompt, (), Params>,
) -> Result<Json<WorkspaceFolderList>, ApiError> {
    let params = &mut request.params;
    let path = params.short("path", 4096)?;
    let cursor = params.short("cursor", 4096)?;
    let limit = params.limit(50, 200)?;
    params.finish()?;
    let gateway = &request.gateway;
    let workspaces = gateway
        .sessions
        .context()
        .workspaces
        .with_granted(request.by.folders.clone());
    let Some(path) = path else {
        let folders = workspaces.top_folders().filter_map(named).collect();
        let roots = Page::new(cursor, limit);
        let (folders, next_cursor) =
            roots.select(folders, |folder: &WorkspaceFolder| folder.path.clone());
        return Ok(Json(WorkspaceFolderList {
            path: None,
            parent: None,
            folders,
            next_cursor,
        }));
    };
    let work = move || workspaces.browse(&path, cursor.as_deref(), limit);
    let page = gateway
        .shutdown
        .spawn_blocking(work)
        .await
        .map_err(ApiError::internal)?;
    Ok(Json(page_of(page.map_err(error)?)))
}

fn page_of(page: FolderPage) -> WorkspaceFolderList {
    let folders = page.names.iter();
    let text = |path: &Path| path.to_str().map(str::to_owned);
    WorkspaceFolderList {
        path: text(&page.path),
        parent: page.parent.as_deref().and_then(text),
        folders: folders
            .filter_map(|name| named(&page.path.join(name)))
            .collect(),
        next_cursor: page.next,
    }
}

/// A folder with its last name. `None` if the path is not UTF-8: a request cannot contain it.
fn named(path: &Path) -> Option<WorkspaceFolder> {
    let text = path.to_str()?;
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(text);
    Some(WorkspaceFolder {
        path: text.to_owned(),
        name: name.to_owned(),
    })
}

fn error(error: FileError) -> ApiError {
    match error {
        FileError::OutsideRoots => {
            let detail = "the folder lies outside the workspace roots: list the roots with a request without `path`";
            ApiError::new(ProblemCode::Forbidden, detail)
        }
        other => other.into(),
    }
}
