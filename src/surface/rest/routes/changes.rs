//! `/v1/sessions/{session}/changes`: the changes of the working folder since the start of a session.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use super::files::run_blocking;
use crate::api::{FileChange, FileChangeKind, FileChangeList, FileChangeText, ProblemCode};
use crate::surface::authorized::CanFiles;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{ApiRequest, Conditions, Params};
use crate::types::SessionId;
use crate::workspace::{ChangeKind, ChangedFile, ChangedText};

/// Lists the files that differ from the start of the session.
///
/// Compares `cwd` with its state before the first prompt, also after changes by commands. Files that `.gitignore` ignores
/// are omitted unless they existed and were not ignored at the start. Links are never followed. A list has at most 500
/// files.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/changes",
    responses((status = 200, body = FileChangeList, description = "The changes."))
)]
pub(super) async fn list_changes(
    mut request: ApiRequest<CanFiles, SessionId, Params>,
) -> Result<Json<FileChangeList>, ApiError> {
    let page = request.params.page::<String>()?;
    request.params.finish()?;
    let baseline = request.open_session().await?.baseline().await?;
    let changes = run_blocking(&request.gateway.shutdown, move || baseline.compare()).await?;
    let files = changes.files.iter().map(file_change).collect();
    let page = page.select(files, |file: &FileChange| file.path.clone());
    Ok(Json(FileChangeList {
        since: changes.since,
        complete: changes.incomplete.is_none(),
        reason: changes.incomplete.map(str::to_owned),
        files: page.entries,
        more: changes.more,
        next_cursor: page.next_cursor,
    }))
}

fn file_change(file: &ChangedFile) -> FileChange {
    FileChange {
        path: file.path.clone(),
        kind: change_kind(file.kind),
        additions: file.lines.map(|(added, _)| added),
        deletions: file.lines.map(|(_, deleted)| deleted),
        binary: file.binary,
        too_large: file.too_large,
    }
}

fn change_kind(kind: ChangeKind) -> FileChangeKind {
    match kind {
        ChangeKind::Added => FileChangeKind::Added,
        ChangeKind::Modified => FileChangeKind::Modified,
        ChangeKind::Deleted => FileChangeKind::Deleted,
    }
}

/// Gets the text of a changed file at the start and now.
///
/// Both texts have at most 1 MiB. A file that has not changed is a 404.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/changes/{*path}",
    responses((status = 200, body = FileChangeText, description = "The texts of the file."))
)]
pub(super) async fn read_change(
    request: ApiRequest<CanFiles, (SessionId, String)>,
) -> Result<Json<FileChangeText>, ApiError> {
    let baseline = request.open_session().await?.baseline().await?;
    let ApiRequest {
        gateway,
        ids: (_, path),
        ..
    } = request;
    let shown = path.clone();
    let ChangedText {
        kind,
        old,
        new,
        etag,
    } = run_blocking(&gateway.shutdown, move || baseline.text(&path)).await?;
    Ok(Json(FileChangeText {
        path: shown,
        kind: change_kind(kind),
        old_text: old,
        new_text: new,
        etag,
    }))
}

/// Reverts a changed file to its state at the start of the session.
///
/// An added file is deleted, and a deleted file is created again. `If-Match` and `If-None-Match: *` refer to the current
/// file, as in the routes of files.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session}/changes/{*path}",
    responses((status = 204, description = "The file is as it was at the start."))
)]
pub(super) async fn revert_change(
    request: ApiRequest<CanFiles, (SessionId, String)>,
    Conditions(expected): Conditions,
) -> Result<Response, ApiError> {
    if request.gateway.log().storage_full() {
        return Err(ApiError::new(
            ProblemCode::StorageFull,
            "the disk is nearly full: the gateway accepts only reads",
        ));
    }
    let baseline = request.open_session().await?.baseline().await?;
    let ApiRequest {
        gateway,
        ids: (_, path),
        ..
    } = request;
    let etag = run_blocking(&gateway.shutdown, move || baseline.revert(&path, &expected)).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(etag) = etag {
        let etag = HeaderValue::try_from(etag).expect("an ETag of a file is plain ASCII");
        response.headers_mut().insert(header::ETAG, etag);
    }
    Ok(response)
}
