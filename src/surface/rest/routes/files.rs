//! `/v1/sessions/{session}/files`: the files in the folders of a session.
//!
//! Agents write these files, so every response is a download that a browser neither renders nor executes.

use axum::Json;
use axum::body::Body;
use axum::extract::OriginalUri;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;

use crate::stream::body_from;
use crate::surface::http::{
    ApiError, ApiRequest, CanFiles, Conditions, Gateway, Params, check_coding, declared_bytes,
    discard_rest, waits_for_continue,
};
use crate::surface::rest::negotiate::{RequestedRange, requested_range};
use base::shutdown::Shutdown;
use base::types::SessionId;
use base::types::text::check_name;
use events::api::{
    FileChange, FileChangeKind, FileChangeList, FileChangeText, FileContent, FileEntry, FileKind,
    FileList, Problem, ProblemCode,
};
use wire::acp;
use workspace::{
    ChangeKind, ChangedFile, EntryKind, FileError, ListEntry, OpenFile, PageLimits, Pattern,
    Upload, WriteOutcome, media_type,
};

/// Size of one read from a file, and of the buffer before one write, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Runs file system work on a blocking thread.
pub(super) async fn run_blocking<T: Send + 'static>(
    shutdown: &Shutdown,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, ApiError> {
    Ok(shutdown
        .spawn_blocking(work)
        .await
        .map_err(ApiError::internal)??)
}

/// Lists the entries of a folder, or, with `match`, searches all folders below it.
///
/// The entries are sorted by name, folder by folder. A page of a search may be short or empty although more
/// pages follow: continue until `nextCursor` is null.
#[utoipa::path(get, path = "/v1/sessions/{session}/files", responses(
    (status = 200, body = FileList, description = "A page of entries."),
))]
pub(super) async fn list_files(
    mut request: ApiRequest<CanFiles, SessionId, Params>,
) -> Result<Json<FileList>, ApiError> {
    let params = &mut request.params;
    let path = params
        .short("path", 4096)?
        .unwrap_or_else(|| ".".to_owned());
    let pattern = params.short("match", 256)?.map(|text| Pattern::new(&text));
    let cursor = params.short("cursor", 4096)?;
    let limit = params.limit(50, 200)?;
    params.finish()?;
    let extent = PageLimits {
        max_entries: limit,
        max_names: request.gateway.limits.max_search_names,
    };
    let workspace = request.open_session().await?.workspace().await?;
    let page = run_blocking(&request.gateway.shutdown, move || match pattern {
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
    let mime_type = if is_file {
        media_type(&found.name).map(str::to_owned)
    } else {
        None
    };
    FileEntry {
        path: found.path,
        name: found.name,
        kind,
        size: is_file.then_some(found.stat.size),
        modified_at: found.stat.modified_at,
        mime_type,
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
pub(super) async fn read_file(
    request: ApiRequest<CanFiles, (SessionId, String)>,
    Conditions(expected): Conditions,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let workspace = request.open_session().await?.workspace().await?;
    let gateway = request.gateway;
    let path = request.ids.1;
    let name = path
        .rsplit('/')
        .find(|name| !name.is_empty())
        .unwrap_or_default()
        .to_owned();
    let file = run_blocking(&gateway.shutdown, move || workspace.open_file(&path)).await?;
    let etag = HeaderValue::try_from(&file.stat.etag).expect("an ETag of a file is plain ASCII");
    let current = Some(file.stat.etag.as_str());
    if expected.if_match.is_some_and(|tags| !tags.matches(current)) {
        return Err(FileError::Changed.into());
    }
    if expected
        .if_none_match
        .is_some_and(|tags| tags.matches(current))
    {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    let size = file.stat.size;
    let (status, bytes) = match requested_range(&headers, size, &file.stat.etag) {
        RequestedRange::Full => (StatusCode::OK, 0..size),
        RequestedRange::Bytes(bytes) => (StatusCode::PARTIAL_CONTENT, bytes),
        RequestedRange::Unsatisfiable => return Ok(range_not_satisfiable(size)),
    };
    let mut response = (status, [(header::ETAG, etag)]).into_response();
    let headers = response.headers_mut();
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {}-{}/{size}", bytes.start, bytes.end - 1);
        headers.insert(
            header::CONTENT_RANGE,
            HeaderValue::try_from(range).expect("digits are plain ASCII"),
        );
    }
    headers.insert(
        header::CONTENT_LENGTH,
        HeaderValue::from(bytes.end - bytes.start),
    );
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    set_download_headers(headers, &name);
    *response.body_mut() = file_body(gateway.shutdown.clone(), file, bytes);
    Ok(response)
}

fn range_not_satisfiable(size: u64) -> Response {
    let detail = format!("the file has {size} bytes");
    let mut response =
        ApiError::from(Problem::new(ProblemCode::RangeNotSatisfiable, detail)).into_response();
    let range = HeaderValue::try_from(format!("bytes */{size}")).expect("digits are plain ASCII");
    response.headers_mut().insert(header::CONTENT_RANGE, range);
    response
}

fn set_download_headers(headers: &mut HeaderMap, name: &str) {
    let disposition = format!(
        "attachment; filename*=UTF-8''{}",
        acp::percent_encode_path(name)
    );
    let disposition = HeaderValue::try_from(disposition).expect("an escaped name is plain ASCII");
    headers.insert(header::CONTENT_DISPOSITION, disposition);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
}

/// Reads the file in chunks, each after the connection has accepted the previous one.
///
/// If the file shrinks meanwhile, the body ends before its `Content-Length`, so the client sees an incomplete
/// response.
fn file_body(shutdown: Shutdown, file: OpenFile, bytes: std::ops::Range<u64>) -> Body {
    Body::new(body_from(|mut out| async move {
        let (mut file, mut at) = (file, bytes.start);
        while at < bytes.end {
            let max = usize::try_from(bytes.end - at)
                .unwrap_or(CHUNK_BYTES)
                .min(CHUNK_BYTES);
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

fn check_storage(gateway: &Gateway) -> Result<(), ApiError> {
    if gateway.log().storage_full() {
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
pub(super) async fn write_file(
    request: ApiRequest<CanFiles, (SessionId, String)>,
    Conditions(expected): Conditions,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    mut body: Body,
) -> Result<Response, ApiError> {
    let max = request.gateway.limits.max_file_bytes;
    if declared_bytes(&headers).is_some_and(|length| length > max) {
        if !waits_for_continue(&headers) {
            discard_rest(&mut body).await;
        }
        return Err(FileError::TooLarge(max).into());
    }
    check_upload_headers(&headers)?;
    // Agents can create any name. Therefore the other routes accept these characters.
    check_name(&request.ids.1).map_err(|error| ApiError::invalid("path", error.to_string()))?;
    let workspace = request.open_session().await?.workspace().await?;
    let gateway = request.gateway;
    let path = request.ids.1;
    check_storage(&gateway)?;
    let upload = run_blocking(&gateway.shutdown, move || {
        workspace.begin(&path, expected, max)
    })
    .await?;
    let saved = tokio::time::timeout(
        gateway.limits.body_timeout,
        receive_upload(&gateway.shutdown, upload, &mut body),
    )
    .await;
    // The rest of the body stays unread, so the connection closes after the response.
    let timed_out = |_| {
        ApiError::new(
            ProblemCode::Malformed,
            "the body was not complete within the time limit",
        )
    };
    let saved = saved.map_err(timed_out)?;
    if let Err(error) = &saved
        && error.problem().code == ProblemCode::TooLarge
    {
        discard_rest(&mut body).await;
    }
    let WriteOutcome { created, etag } = saved?;
    let etag = HeaderValue::try_from(etag).expect("an ETag of a file is plain ASCII");
    let status = if created {
        StatusCode::CREATED
    } else {
        StatusCode::NO_CONTENT
    };
    let mut response = (status, [(header::ETAG, etag)]).into_response();
    if created && let Ok(location) = HeaderValue::try_from(uri.path()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

fn check_upload_headers(headers: &HeaderMap) -> Result<(), ApiError> {
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
    mut upload: Upload,
    body: &mut Body,
) -> Result<WriteOutcome, ApiError> {
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
pub(super) async fn delete_file(
    request: ApiRequest<CanFiles, (SessionId, String)>,
    Conditions(expected): Conditions,
) -> Result<StatusCode, ApiError> {
    let workspace = request.open_session().await?.workspace().await?;
    let (_, path) = request.ids;
    run_blocking(&request.gateway.shutdown, move || {
        workspace.delete(&path, &expected)
    })
    .await?;
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
pub(super) async fn list_changes(
    mut request: ApiRequest<CanFiles, SessionId, Params>,
) -> Result<Json<FileChangeList>, ApiError> {
    let page = request.params.page::<String>()?;
    request.params.finish()?;
    let baseline = request.open_session().await?.baseline().await?;
    let changes = run_blocking(&request.gateway.shutdown, move || baseline.compare()).await?;
    let files = changes.files.iter().map(file_change).collect();
    let (files, next_cursor) = page.select(files, |file: &FileChange| file.path.clone());
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
pub(super) async fn read_change(
    request: ApiRequest<CanFiles, (SessionId, String)>,
) -> Result<Json<FileChangeText>, ApiError> {
    let baseline = request.open_session().await?.baseline().await?;
    let gateway = request.gateway;
    let path = request.ids.1;
    let shown = path.clone();
    let text = run_blocking(&gateway.shutdown, move || baseline.text(&path)).await?;
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
pub(super) async fn revert_change(
    request: ApiRequest<CanFiles, (SessionId, String)>,
    Conditions(expected): Conditions,
) -> Result<Response, ApiError> {
    check_storage(&request.gateway)?;
    let baseline = request.open_session().await?.baseline().await?;
    let gateway = request.gateway;
    let path = request.ids.1;
    let etag = run_blocking(&gateway.shutdown, move || baseline.revert(&path, &expected)).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(etag) = etag {
        let etag = HeaderValue::try_from(etag).expect("an ETag of a file is plain ASCII");
        response.headers_mut().insert(header::ETAG, etag);
    }
    Ok(response)
}
