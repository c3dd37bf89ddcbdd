//! `/v1/sessions/{session}/files`: the session's folders. What is read is always inert: no browser runs or shows it.

use axum::Json;
use axum::body::Body;
use axum::extract::{OriginalUri, State};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;

use crate::acp;
use crate::api::{FileEntry, FileKind, FileList, Problem, ProblemCode};
use crate::http::body::body_from;
use crate::http::error::ApiError;
use crate::http::extract::{Authorized, CanFiles, Conditions, FilePath, NoQuery, Params, SessionPath};
use crate::http::range::{RequestedRange, requested_range};
use crate::http::state::Gateway;
use crate::shutdown::Shutdown;
use crate::workspace::{
    Precondition, PageLimits, FileError, ListEntry, EntryKind, OpenFile, Pattern, WriteOutcome, Upload, media_type,
};

/// Bytes that are read at a time, and gathered before they are written.
const CHUNK_BYTES: usize = 256 << 10;

impl From<FileError> for ApiError {
    fn from(error: FileError) -> Self {
        let detail = error.to_string();
        let code = match error {
            FileError::Malformed
            | FileError::Relative
            | FileError::NotAFile
            | FileError::NotADirectory
            | FileError::NotEmpty
            | FileError::NotText => return Self::invalid("path", detail),
            FileError::Io(_) => return Self::internal(error),
            FileError::OutsideRoots | FileError::PermissionDenied => ProblemCode::Forbidden,
            FileError::Missing => ProblemCode::NotFound,
            FileError::TooLarge(_) => ProblemCode::TooLarge,
            FileError::Changed => ProblemCode::PreconditionFailed,
            FileError::DiskFull => ProblemCode::StorageFull,
        };
        Self::new(code, detail)
    }
}

/// Runs what asks the file system.
async fn run_blocking<T: Send + 'static>(
    shutdown: &Shutdown,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, ApiError> {
    Ok(shutdown.spawn_blocking(work).await.map_err(ApiError::internal)??)
}

/// What lies in a folder, or, with `match`, anywhere below it.
///
/// By name, folder by folder. A page of a search may be short, or empty, and not be the last.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/files",
    tag = "files",
    params(
        ("path" = Option<String>, Query, max_length = 4096, description = "The folder; `cwd` when absent. Relative to it, or absolute and in one of the session's folders."),
        ("match" = Option<String>, Query, max_length = 256, description = "Find below the folder what has this in its path, whatever the case; with `*` (any characters) or `?` (one) a pattern of the whole path."),
        ("cursor" = Option<String>, Query, max_length = 4096, description = "`nextCursor` of the page before."),
        ("limit" = Option<u16>, Query, minimum = 1, maximum = 200, description = "Files on a page; 50."),
    ),
    responses((status = 200, body = FileList, description = "A page."))
)]
pub(in crate::http) async fn list_files(
    State(gateway): State<Gateway>,
    by: Authorized<CanFiles>,
    SessionPath(session): SessionPath,
    mut params: Params,
) -> Result<Json<FileList>, ApiError> {
    let path = params.short("path", 4096)?.unwrap_or_else(|| ".".to_owned());
    let pattern = params.short("match", 256)?.map(|text| Pattern::new(&text));
    let cursor = params.short("cursor", 4096)?;
    let limit = params.limit(50, 200)?;
    params.finish()?;
    let extent = PageLimits { max_entries: limit, max_names: gateway.limits.file_names };
    let workspace = gateway.sessions.open(&by, session).await?.workspace().await?;
    let page = run_blocking(&gateway.shutdown, move || match pattern {
        None => workspace.list(&path, cursor.as_deref(), limit),
        Some(pattern) => workspace.find(&path, &pattern, cursor.as_deref(), extent),
    });
    let page = page.await?;
    Ok(Json(FileList { files: page.entries.into_iter().map(file_entry).collect(), next_cursor: page.next }))
}

fn file_entry(found: ListEntry) -> FileEntry {
    let ListEntry { path, name, stat: seen } = found;
    let kind = match seen.kind {
        EntryKind::File => FileKind::File,
        EntryKind::Directory => FileKind::Folder,
        EntryKind::Link => FileKind::Link,
        EntryKind::Other => FileKind::Other,
    };
    let is_file = kind == FileKind::File;
    let mime_type = media_type(&name).filter(|_| is_file).map(str::to_owned);
    let size = is_file.then_some(seen.size);
    FileEntry { path, name, kind, size, modified_at: seen.modified_at, mime_type }
}

/// The bytes of a file.
///
/// Always as `application/octet-stream` and as an attachment, whatever it is. `HEAD` gives the headers alone.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session}/files/{*path}",
    tag = "files",
    params(
        ("If-Match" = Option<String>, Header, description = "Only this version."),
        ("If-None-Match" = Option<String>, Header, description = "Only another version."),
        ("Range" = Option<String>, Header, description = "One range of bytes; several are answered with the whole file."),
        ("If-Range" = Option<String>, Header, description = "The range only of this version, else the whole file."),
    ),
    responses(
        (
            status = 200, description = "The file.", body = [u8], content_type = "application/octet-stream",
            headers(("ETag" = String, description = "For If-Match, If-None-Match and If-Range."))
        ),
        (
            status = 206, description = "The range.", body = [u8], content_type = "application/octet-stream",
            headers(
                ("ETag" = String, description = "For If-Match, If-None-Match and If-Range."),
                ("Content-Range" = String, description = "Which bytes, of how many."),
            )
        ),
        (
            status = 304, description = "It is still the version of If-None-Match.",
            headers(("ETag" = String, description = "Of the version."))
        ),
    )
)]
pub(in crate::http) async fn read_file(
    State(gateway): State<Gateway>,
    by: Authorized<CanFiles>,
    FilePath(session, path): FilePath,
    Conditions(expected): Conditions,
    headers: HeaderMap,
    NoQuery: NoQuery,
) -> Result<Response, ApiError> {
    let workspace = gateway.sessions.open(&by, session).await?.workspace().await?;
    let name = path.rsplit('/').find(|name| !name.is_empty()).unwrap_or_default().to_owned();
    let file = run_blocking(&gateway.shutdown, move || workspace.open_file(&path)).await?;
    let etag = HeaderValue::try_from(&file.stat.etag).expect("it is made of digits");
    let Precondition { if_match, if_none_match } = expected;
    if if_match.is_some_and(|tags| !tags.matches(Some(&file.stat.etag))) {
        return Err(FileError::Changed.into());
    }
    if if_none_match.is_some_and(|tags| tags.matches(Some(&file.stat.etag))) {
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
        headers.insert(header::CONTENT_RANGE, HeaderValue::try_from(range).expect("digits are plain ASCII"));
    }
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.end - bytes.start));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    set_download_headers(headers, &name);
    *response.body_mut() = file_body(gateway.shutdown.clone(), file, bytes);
    Ok(response)
}

fn range_not_satisfiable(size: u64) -> Response {
    let detail = format!("the file has {size} bytes");
    let mut response = ApiError::from(Problem::new(ProblemCode::RangeNotSatisfiable, detail)).into_response();
    let range = HeaderValue::try_from(format!("bytes */{size}")).expect("digits are plain ASCII");
    response.headers_mut().insert(header::CONTENT_RANGE, range);
    response
}

/// Whatever an agent wrote into it, a browser only stores it.
fn set_download_headers(headers: &mut HeaderMap, name: &str) {
    let disposition = format!("attachment; filename*=UTF-8''{}", acp::percent_encode_path(name));
    let disposition = HeaderValue::try_from(disposition).expect("it is plain ASCII");
    headers.insert(header::CONTENT_DISPOSITION, disposition);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; sandbox");
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
}

/// Piece by piece, each read when the connection has taken the one before. A file that got shorter meanwhile breaks
/// the answer off, by the length that was promised.
fn file_body(shutdown: Shutdown, file: OpenFile, bytes: std::ops::Range<u64>) -> Body {
    body_from(|mut out| async move {
        let (mut file, mut at) = (file, bytes.start);
        while at < bytes.end {
            let max = usize::try_from(bytes.end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let read = shutdown.spawn_blocking(move || (file.read_at(at, max), file));
            let Ok((Ok(piece), same)) = read.await else { return };
            if piece.is_empty() {
                return;
            }
            file = same;
            at += piece.len() as u64;
            out.send(Bytes::from(piece)).await;
        }
    })
}

/// Writes a file: makes it or replaces it, as a whole.
///
/// Folders above it that are missing are made. The body is the file's bytes, of whatever type.
#[utoipa::path(
    put,
    path = "/v1/sessions/{session}/files/{*path}",
    tag = "files",
    request_body(content = [u8], content_type = "application/octet-stream", description = "The bytes."),
    params(
        ("If-Match" = Option<String>, Header, description = "Only if the file is still this version."),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is no such file."),
    ),
    responses(
        (
            status = 201, description = "There is a new file.",
            headers(("Location" = String, description = "The file."), ("ETag" = String, description = "Of the file as it is now."))
        ),
        (
            status = 204, description = "The file was replaced.",
            headers(("ETag" = String, description = "Of the file as it is now."))
        ),
    )
)]
pub(in crate::http) async fn write_file(
    State(gateway): State<Gateway>,
    by: Authorized<CanFiles>,
    FilePath(session, path): FilePath,
    Conditions(expected): Conditions,
    (OriginalUri(uri), headers): (OriginalUri, HeaderMap),
    NoQuery: NoQuery,
    body: Body,
) -> Result<Response, ApiError> {
    let max = gateway.limits.file_bytes;
    check_upload_headers(&headers, max)?;
    let workspace = gateway.sessions.open(&by, session).await?.workspace().await?;
    if gateway.log.alarm().is_some() {
        return Err(ApiError::new(ProblemCode::StorageFull, "the storage is nearly full; reads go on"));
    }
    let upload = run_blocking(&gateway.shutdown, move || workspace.begin(&path, expected, max)).await?;
    let saved = tokio::time::timeout(gateway.limits.body, receive_upload(&gateway.shutdown, upload, body)).await;
    // What is left of the body is never read, so the connection closes after the answer.
    let timed_out = |_| ApiError::new(ProblemCode::Malformed, "the body took too long");
    let WriteOutcome { created, etag } = saved.map_err(timed_out)??;
    let etag = HeaderValue::try_from(etag).expect("it is made of digits");
    let status = if created { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    let mut response = (status, [(header::ETAG, etag)]).into_response();
    if created && let Ok(location) = HeaderValue::try_from(uri.path()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// What the headers say of the body.
fn check_upload_headers(headers: &HeaderMap, max: u64) -> Result<(), ApiError> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        let detail = "the body is taken as it is: send it without Content-Encoding";
        return Err(ApiError::new(ProblemCode::UnsupportedMediaType, detail));
    }
    if headers.contains_key(header::CONTENT_RANGE) {
        return Err(ApiError::new(ProblemCode::Malformed, "a file is written as a whole"));
    }
    let content_length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if content_length.is_some_and(|told| told > max) { Err(FileError::TooLarge(max).into()) } else { Ok(()) }
}

/// Writes a body as it comes. Left in the middle, it leaves nothing.
async fn receive_upload(shutdown: &Shutdown, mut upload: Upload, mut body: Body) -> Result<WriteOutcome, ApiError> {
    let mut gathered = BytesMut::new();
    loop {
        let frame = body.frame().await.transpose();
        let frame = frame.map_err(|_| ApiError::new(ProblemCode::Malformed, "the body ended too early"))?;
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

/// Deletes a file, an empty folder, or a link and not what it leads to.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{session}/files/{*path}",
    tag = "files",
    params(("If-Match" = Option<String>, Header, description = "Only if the file is still this version.")),
    responses((status = 204, description = "It is gone."))
)]
pub(in crate::http) async fn delete_file(
    State(gateway): State<Gateway>,
    by: Authorized<CanFiles>,
    FilePath(session, path): FilePath,
    Conditions(expected): Conditions,
    NoQuery: NoQuery,
) -> Result<StatusCode, ApiError> {
    let workspace = gateway.sessions.open(&by, session).await?.workspace().await?;
    run_blocking(&gateway.shutdown, move || workspace.delete(&path, &expected)).await?;
    Ok(StatusCode::NO_CONTENT)
}
