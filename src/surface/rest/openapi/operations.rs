//! The operations of a path.

use utoipa::openapi::PathItem;
use utoipa::openapi::path::Operation;

/// The operations of a path with their methods.
pub(super) fn operations(
    item: &mut PathItem,
) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem {
        get,
        put,
        post,
        delete,
        patch,
        ..
    } = item;
    [
        ("get", get),
        ("put", put),
        ("post", post),
        ("delete", delete),
        ("patch", patch),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}
