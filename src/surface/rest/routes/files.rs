//! `/v1/sessions/{session}/files`: the files in the folders of a session. `/v1/workspaces`: the folders in which sessions can
//! work.
//!
//! Agents write these files, so every response is a download that a browser neither renders nor executes.

use std::path::Path;

use axum::Json;
use axum::body::Body;
use axum::extract::OriginalUri;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;

use super::operations::Routes;
use crate::stream::body_from;
use crate::surface::http::{
    ApiError, ApiRequest, AppState, CanFiles, CanPrompt, Conditions, Page, Params, Result, ascii,
    check_coding, declared_bytes, discard_rest, waits_for_continue,
};
use crate::surface::rest::negotiate::{RequestedRange, requested_range};
use base::shutdown::Shutdown;
use base::types::text::check_name;
use base::types::{Access, SessionId};
use events::api::{
    FileChange, FileChangeKind, FileChangeList, FileChangeText, FileContent, FileEntry, FileKind,
    FileList, ProblemCode, WorkspaceFolder, WorkspaceFolderList,
};
use sessions::session::SessionHandle;
use wire::acp;
use workspace::{
    ChangeKind, ChangedFile, EntryKind, FileError, ListEntry, OpenFile, PageLimits, Pattern,
    Upload, WriteOutcome, media_type,
};

pub(super) fn routes() -> Routes {
    routes![
        list_files,
        read_file,
        write_file,
        delete_file,
        list_changes,
        read_change,
        revert_change,
        list_workspaces
    ]
}

/// Size of one read from a file, and of the buffer before one write, in bytes.
const CHUNK_BYTES: usize = 256 << 10;
const FILE_CSP: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// Runs file system work on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    shutdown: &Shutdown,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T> {
    let done = shutdown.spawn_blocking(work).await;
    Ok(done.map_err(ApiError::internal)??)
}

/// Lists the entries of a folder, or, with `match`, searches all folders below it.
///
/// The entries are sorted by name, folder by folder. A page of a search may be short or empty although more
/// pages follow: continue until `nextCursor` is null.
#[utoipa::path(get, path = "/v1/sessions/{session}/files", responses(
    (status = 200, body = FileList, description = "A page of entries."),
))]
async fn list_files(
    mut request: ApiRequest<CanFiles, SessionId, Params>,
) -> Result<Json<FileList>> {
    let params = &mut request.params;
    let path = params.short("path", 4096)?;
    let path = path.unwrap_or_else(|| ".".to_owned());
    let pattern = params.short("match", 256)?.map(|text| Pattern::new(&text));
    let cursor = params.short("cursor", 4096)?;
    let limit = params.limit(50, 200)?;
    params.finish()?;
    let extent = PageLimits {
        max_entries: limit,
        max_names: request.app.limits.http.max_search_names,
    };
    let workspace = request
        .open_session()
        .await?
        .workspace(Access::Read)
        .await?;
    let page = run_blocking(&request.app.shutdown, move || match pattern {
        None => workspace.list(&path, cursor.as_deref(), limit),
        Some(pattern) => workspace.find(&path, &pattern, cursor.as_deref(), extent),
    });
    let page = page.await?;
    Ok(Json(FileList {
        files: page.entries.into_iter().map(file_entry).collect(),
        next_cursor: page.next,
    }))
}

fn file_entry(found: ListEntry) -> FileEntry {
    let kind = match found.stat.kind {
        EntryKind::File => FileKind::File,
        EntryKind::Directory => FileKind::Folder,
        EntryKind::Link => FileKind::Link,
        EntryKind::Other => FileKind::Other,
    };
    let is_file = kind == FileKind::File;
    let mime_type = is_file.then(|| media_type(&found.name)).flatten();
    FileEntry {
        mime_type: mime_type.map(str::to_owned),
        path: found.path,
        name: found.name,
        kind,
        size: is_file.then_some(found.stat.size),
        modified_at: found.stat.modified_at,
    }
}

/// Downloads a file.
///
/// The response is always `application/octet-stream` and an attachment. `HEAD` returns only the headers.
#[utoipa::path(get, path = "/v1/sessions/{session}/files/{*path}", responses(
    (status = 200, body = FileContent, content_type = "application/octet-stream", description = "The file."),
    (status = 206, body = FileContent, content_type = "application/octet-stream", description = "The requested range."),
    (status = 304, description = "The file has an ETag from `If-None-Match`."),
))]
async fn read_file(
    request: ApiRequest<CanFiles, (SessionId, String)>,
    Conditions(expected): Conditions,
    headers: HeaderMap,
) -> Result<Response> {
    let workspace = request
        .open_session()
        .await?
        .workspace(Access::Read)
        .await?;
    let app = request.app;
    let path = request.ids.1;
    let name = path.rsplit('/').find(|name| !name.is_empty());
    let name = name.unwrap_or_default().to_owned();
    let file = run_blocking(&app.shutdown, move || workspace.open_file(&path)).await?;
    let etag = [(header::ETAG, ascii(&*file.stat.etag))];
    let current = Some(file.stat.etag.as_str());
    if expected.if_match.is_some_and(|tags| !tags.matches(current)) {
        return Err(FileError::Changed.into());
    }
    let cached = expected.if_none_match;
    if cached.is_some_and(|tags| tags.matches(current)) {
        return Ok((StatusCode::NOT_MODIFIED, etag).into_response());
    }
    let size = file.stat.size;
    let (status, bytes) = match requested_range(&headers, size, &file.stat.etag) {
        RequestedRange::Full => (StatusCode::OK, 0..size),
        RequestedRange::Bytes(bytes) => (StatusCode::PARTIAL_CONTENT, bytes),
        RequestedRange::Unsatisfiable => return Ok(range_not_satisfiable(size)),
    };
    let disposition = acp::percent_encode_path(&name);
    let disposition = format!("attachment; filename*=UTF-8''{disposition}");
    let headers = [
        (
            header::CONTENT_LENGTH,
            HeaderValue::from(bytes.end - bytes.start),
        ),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        (header::CONTENT_DISPOSITION, ascii(disposition)),
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(FILE_CSP),
        ),
    ];
    let range = (status == StatusCode::PARTIAL_CONTENT).then(|| {
        let range = format!("bytes {}-{}/{size}", bytes.start, bytes.end - 1);
        [(header::CONTENT_RANGE, ascii(range))]
    });
    let body = file_body(app.shutdown.clone(), file, bytes);
    Ok((status, etag, headers, range, body).into_response())
}

fn range_not_satisfiable(size: u64) -> Response {
    let detail = format!("the file has {size} bytes");
    let range = [(header::CONTENT_RANGE, ascii(format!("bytes */{size}")))];
    let error = ApiError::new(ProblemCode::RangeNotSatisfiable, detail);
    (range, error).into_response()
}

/// Reads the file in chunks, each after the connection has accepted the previous one.
///
/// If the file shrinks meanwhile, the body ends before its `Content-Length`, so the client sees an incomplete
/// response.
fn file_body(shutdown: Shutdown, file: OpenFile, bytes: std::ops::Range<u64>) -> Body {
    Body::new(body_from(|mut out| async move {
        let mut file = file;
        let mut at = bytes.start;
        while at < bytes.end {
            let rest = usize::try_from(bytes.end - at).unwrap_or(usize::MAX);
            let max = rest.min(CHUNK_BYTES);
            let read = shutdown.spawn_blocking(move || (file.read_at(at, max), file));
            let Ok((Ok(piece), same)) = read.await else {
                return;
            };
            if piece.is_empty() {
                return;
            }
            file = same;
            at += piece.len() as u64;
            out.send(Bytes::from(piece)).await;
        }
    }))
}

fn check_storage(app: &AppState) -> Result<()> {
    if app.log().storage_full() {
        let detail = "the disk is nearly full: the gateway accepts only reads";
        return Err(ApiError::new(ProblemCode::StorageFull, detail));
    }
    Ok(())
}

/// Creates or replaces a file atomically.
///
/// Missing parent folders are created. The body is the content of the file, with any `Content-Type`.
#[utoipa::path(
    put,
    path = "/v1/sessions/{session}/files/{*path}",
    request_body(content = FileContent, content_type = "application/octet-stream", description = "The content of the file."),
    responses(
        (status = 201, description = "The file was created."),
        (status = 204, description = "The file was replaced."),
    )
)]
async fn write_file(
    request: ApiRequest<CanFiles, (SessionId, String)>,
    Conditions(expected): Conditions,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    mut body: Body,
) -> Result<Response> {
    let max = request.app.limits.sessions.max_file_bytes;
    if declared_bytes(&headers).is_some_and(|length| length > max) {
        if !waits_for_continue(&headers) {
            discard_rest(&mut body).await;
        }
        return Err(FileError::TooLarge(max).into());
    }
    check_upload_headers(&headers)?;
    // Agents can create any name. Therefore the other routes accept these characters.
    check_name(&request.ids.1).map_err(|error| ApiError::invalid("path", error.to_string()))?;
    let session = request.open_session().await?;
    let workspace = session.workspace(Access::Prompt).await?;
    let app = request.app;
    let path = request.ids.1;
    check_storage(&app)?;
    let begin = move || workspace.begin(&path, expected, max);
    let upload = run_blocking(&app.shutdown, begin).await?;
    let saved = receive_upload(&app.shutdown, &session, upload, &mut body);
    let saved = tokio::time::timeout(app.limits.http.body_timeout, saved).await;
    // The rest of the body stays unread, so the connection closes after the response.
    let detail = "the body was not complete within the time limit";
    let saved = saved.map_err(|_| ApiError::new(ProblemCode::Malformed, detail))?;
    if let Err(error) = &saved
        && error.problem().code == ProblemCode::TooLarge
    {
        discard_rest(&mut body).await;
    }
    let saved = saved?;
    let etag = [(header::ETAG, ascii(saved.etag))];
    if saved.created {
        let location = HeaderValue::try_from(uri.path()).ok();
        let location = location.map(|location| [(header::LOCATION, location)]);
        Ok((StatusCode::CREATED, etag, location, ()).into_response())
    } else {
        Ok((StatusCode::NO_CONTENT, etag).into_response())
    }
}

fn check_upload_headers(headers: &HeaderMap) -> Result<()> {
    check_coding(headers)?;
    if headers.contains_key(header::CONTENT_RANGE) {
        let detail = "partial writes are not supported: send the whole file without Content-Range";
        return Err(ApiError::new(ProblemCode::Malformed, detail));
    }
    Ok(())
}

/// Writes the body to the upload. If this future is dropped, no file remains.
async fn receive_upload(
    shutdown: &Shutdown,
    session: &SessionHandle,
    mut upload: Upload,
    body: &mut Body,
) -> Result<WriteOutcome> {
    let mut gathered = BytesMut::new();
    loop {
        let frame = body.frame().await.transpose();
        let frame =
            frame.map_err(|_| ApiError::new(ProblemCode::Malformed, "the body is incomplete"))?;
        let is_last = frame.is_none();
        if let Some(data) = frame.and_then(|frame| frame.into_data().ok()) {
            gathered.extend_from_slice(&data);
        }
        if is_last || gathered.len() >= CHUNK_BYTES {
            let piece = gathered.split();
            upload = run_blocking(shutdown, move || upload.write(&piece).map(|()| upload)).await?;
        }
        if is_last {
            // The body may have taken long.
            session.require(Access::Prompt)?;
            return run_blocking(shutdown, move || upload.finish()).await;
        }
    }
}

/// Deletes a file, an empty folder, or a symbolic link (but not its target).
///
/// The path is relative to the folder of the session. Files outside of it, also behind links, are 403. A folder with
/// entries is 422. `If-Match` makes the request conditional.
#[utoipa::path(delete, path = "/v1/sessions/{session}/files/{*path}", responses(
    (status = 204, description = "The entry is deleted."),
))]
async fn delete_file(
    request: ApiRequest<CanFiles, (SessionId, String)>,
    Conditions(expected): Conditions,
) -> Result<StatusCode> {
    let workspace = request
        .open_session()
        .await?
        .workspace(Access::Prompt)
        .await?;
    let path = request.ids.1;
    let delete = move || workspace.delete(&path, &expected);
    run_blocking(&request.app.shutdown, delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the files that differ from the start of the session.
///
/// Compares `cwd` with its state before the first prompt, also after changes by commands. Files that `.gitignore` ignores
/// are omitted unless they existed and were not ignored at the start. Links are never followed. A list has at most 500
/// files.
#[utoipa::path(get, path = "/v1/sessions/{session}/changes", responses(
    (status = 200, body = FileChangeList, description = "The changes."),
))]
async fn list_changes(
    request: ApiRequest<CanFiles, SessionId, Page<String>>,
) -> Result<Json<FileChangeList>> {
    let baseline = request.open_session().await?.baseline(Access::Read).await?;
    let changes = run_blocking(&request.app.shutdown, move || baseline.compare()).await?;
    let files = changes.files.iter().map(file_change).collect();
    let (files, next_cursor) = request.params.select(files, |file| file.path.clone());
    Ok(Json(FileChangeList {
        since: changes.since,
        complete: changes.incomplete.is_none(),
        reason: changes.incomplete.map(str::to_owned),
        files,
        more: changes.more,
        next_cursor,
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
#[utoipa::path(get, path = "/v1/sessions/{session}/changes/{*path}", responses(
    (status = 200, body = FileChangeText, description = "The texts of the file."),
))]
async fn read_change(
    request: ApiRequest<CanFiles, (SessionId, String)>,
) -> Result<Json<FileChangeText>> {
    let baseline = request.open_session().await?.baseline(Access::Read).await?;
    let app = request.app;
    let path = request.ids.1;
    let shown = path.clone();
    let text = run_blocking(&app.shutdown, move || baseline.text(&path)).await?;
    Ok(Json(FileChangeText {
        path: shown,
        kind: change_kind(text.kind),
        old_text: text.old,
        new_text: text.new,
        etag: text.etag,
    }))
}

/// Reverts a changed file to its state at the start of the session.
///
/// An added file is deleted, and a deleted file is created again. `If-Match` and `If-None-Match: *` refer to the current
/// file, as in the routes of files.
#[utoipa::path(delete, path = "/v1/sessions/{session}/changes/{*path}", responses(
    (status = 204, description = "The file is as it was at the start."),
))]
async fn revert_change(
    request: ApiRequest<CanFiles, (SessionId, String)>,
    Conditions(expected): Conditions,
) -> Result<Response> {
    check_storage(&request.app)?;
    let baseline = request
        .open_session()
        .await?
        .baseline(Access::Prompt)
        .await?;
    let app = request.app;
    let path = request.ids.1;
    let etag = run_blocking(&app.shutdown, move || baseline.revert(&path, &expected)).await?;
    let etag = etag.map(|etag| [(header::ETAG, ascii(etag))]);
    Ok((StatusCode::NO_CONTENT, etag, ()).into_response())
}

/// Lists folders in which a new session can work.
///
/// Without `path`, lists the workspace roots and the folders that were granted to the key. With `path`, lists the folders
/// in a folder below one of them, sorted by name. Links, hidden folders, and folders that the gateway created for sessions
/// are omitted.
#[utoipa::path(get, path = "/v1/workspaces", responses(
    (status = 200, body = WorkspaceFolderList, description = "A page of folders."),
))]
async fn list_workspaces(
    mut request: ApiRequest<CanPrompt, (), Params>,
) -> Result<Json<WorkspaceFolderList>> {
    let params = &mut request.params;
    let path = params.short("path", 4096)?;
    let cursor = params.short("cursor", 4096)?;
    let limit = params.limit(50, 200)?;
    params.finish()?;
    let workspaces = request.app.sessions.context().folders_of(&request.by);
    let Some(path) = path else {
        let folders = workspaces.top_folders().filter_map(folder).collect();
        let roots = Page::new(cursor, limit);
        let (folders, next_cursor) = roots.select(folders, |folder| folder.path.clone());
        return Ok(Json(WorkspaceFolderList {
            path: None,
            parent: None,
            folders,
            next_cursor,
        }));
    };
    let work = move || workspaces.browse(&path, cursor.as_deref(), limit);
    let page = request.app.shutdown.spawn_blocking(work).await;
    let page = page.map_err(ApiError::internal)?.map_err(|error| match error {
        FileError::OutsideRoots => {
            let detail = "the folder lies outside the workspace roots: list the roots with a request without `path`";
            ApiError::new(ProblemCode::Forbidden, detail)
        }
        other => other.into(),
    })?;
    let text = |path: &Path| path.to_str().map(str::to_owned);
    let folders = page.names.iter().map(|name| page.path.join(name));
    Ok(Json(WorkspaceFolderList {
        path: text(&page.path),
        parent: page.parent.as_deref().and_then(text),
        folders: folders.filter_map(|path| folder(&path)).collect(),
        next_cursor: page.next,
    }))
}

/// A folder with its last name. `None` if the path is not UTF-8: a request cannot contain it.
fn folder(path: &Path) -> Option<WorkspaceFolder> {
    let text = path.to_str()?;
    let name = path.file_name().and_then(|name| name.to_str());
    Some(WorkspaceFolder {
        path: text.to_owned(),
        name: name.unwrap_or(text).to_owned(),
    })
}
