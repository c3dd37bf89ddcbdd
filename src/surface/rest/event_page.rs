//! Pages: events as one JSON object, for clients that poll.

use std::pin::pin;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use tokio::time::Instant;

use super::error::ApiError;
use super::extract::set_preference_applied;
use crate::api::Problem;
use crate::auth::Admission;
use crate::stream::{Feed, Page, PageState};
use crate::surface::Gateway;

/// Returns a page of at most `limit` events. With `wait`, an empty page is held until an event passes the
/// filter, the time expires, or a drain starts. Fails if the key ends.
pub(crate) async fn page_response(
    gateway: &Gateway,
    admission: &Admission,
    mut feed: Feed,
    limit: usize,
    wait: Option<Duration>,
) -> Result<Response, ApiError> {
    let mut page = Page::new(&feed, limit, gateway.limits.max_page_bytes);
    let deadline = wait.map(|wait| Instant::now() + wait);
    let was_draining = gateway.shutdown.is_draining();
    let mut key_ended = pin!(admission.wait_key_ended());
    let mut caught_up = false;
    let more = loop {
        let state = if caught_up {
            let Some(deadline) = deadline.filter(|_| page.is_empty()) else {
                break false;
            };
            tokio::select! {
                biased;
                // The problem has a retry delay. Without it, a client that polls again would loop during the
                // drain.
                () = gateway.shutdown.drain_started(), if was_draining => return Err(ApiError::draining()),
                () = gateway.shutdown.drain_started() => break false,
                () = key_ended.as_mut() => return Err(Problem::key_ended().into()),
                // The timer precedes the events, because events that a filter drops may arrive without a
                // pause.
                () = tokio::time::sleep_until(deadline) => break false,
                state = page.read(&mut feed) => state,
            }
        } else {
            page.read(&mut feed).await
        };
        match state? {
            PageState::Full => break true,
            PageState::Accepted { ready } => caught_up |= ready,
            PageState::Ended => break false,
        }
    };
    let mut response = page.finish(&feed, more).into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    set_preference_applied(&mut response, wait);
    Ok(response)
}
