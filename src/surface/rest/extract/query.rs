//! Query parameters. An unknown or malformed parameter is a 422, and so is a repeated one that is not a list.

use std::str::FromStr;

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;

use crate::surface::rest::error::ApiError;

/// The parameters that the route has not read yet.
#[derive(Debug)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// All values of a repeatable parameter.
    pub fn all(&mut self, name: &str) -> Vec<String> {
        self.0
            .extract_if(.., |(key, _)| key == name)
            .map(|(_, value)| value)
            .collect()
    }

    /// The members of an object parameter, written as `name.key=value` or `name[key]=value`.
    pub fn members(&mut self, name: &str) -> Vec<(String, String)> {
        let key = |given: &str| {
            let rest = given.strip_prefix(name)?;
            let key = rest
                .strip_prefix('.')
                .or_else(|| rest.strip_prefix('[')?.strip_suffix(']'));
            key.map(str::to_owned)
        };
        let found = self.0.extract_if(.., |(given, _)| key(given).is_some());
        found
            .filter_map(|(given, value)| Some((key(&given)?, value)))
            .collect()
    }

    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let mut values = self.all(name);
        if values.len() > 1 {
            return Err(ApiError::invalid(
                name,
                "this parameter must not be repeated",
            ));
        }
        Ok(values.pop())
    }

    pub fn short(&mut self, name: &str, max: usize) -> Result<Option<String>, ApiError> {
        let text = self.text(name)?;
        if text.as_ref().is_some_and(|text| text.chars().count() > max) {
            return Err(ApiError::invalid(
                name,
                format!("expected at most {max} characters"),
            ));
        }
        Ok(text)
    }

    /// `expected` describes a valid value in the error message.
    pub fn parsed<T: FromStr>(
        &mut self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, ApiError> {
        let text = self.text(name)?;
        text.map(|text| {
            text.parse()
                .map_err(|_| ApiError::invalid(name, format!("expected {expected}")))
        })
        .transpose()
    }

    pub fn flag(&mut self, name: &str, default: bool) -> Result<bool, ApiError> {
        Ok(self.parsed(name, "true or false")?.unwrap_or(default))
    }

    /// The page size: a number between 1 and `max`.
    pub fn limit(&mut self, default: usize, max: usize) -> Result<usize, ApiError> {
        let limit: Option<usize> = self.parsed("limit", "a number")?;
        match limit {
            None => Ok(default),
            Some(limit) if (1..=max).contains(&limit) => Ok(limit),
            Some(_) => Err(ApiError::invalid("limit", format!("expected 1 to {max}"))),
        }
    }

    /// The position and the size of a page of a list that is complete in memory. `K` identifies an entry.
    pub fn page<K: FromStr>(&mut self) -> Result<Page<K>, ApiError> {
        Ok(Page {
            after: self.parsed("cursor", "the nextCursor of a previous page")?,
            limit: self.limit(Page::<K>::MAX, Page::<K>::MAX)?,
        })
    }

    /// Fails if an unread parameter remains.
    pub fn finish(&self) -> Result<(), ApiError> {
        self.0.first().map_or(Ok(()), |(name, _)| {
            Err(ApiError::invalid(name, "unknown parameter"))
        })
    }
}

/// A page of a list that is complete in memory. The entries have a unique key that never changes, so that a client that pages sees
/// each entry once, also if entries are added or removed.
#[derive(Debug)]
pub struct Page<K> {
    after: Option<K>,
    limit: usize,
}

impl<K> Page<K> {
    /// Without `limit`, a page has this number of entries. The lists that use it are shorter in practice.
    const MAX: usize = 1000;

    pub fn new(after: Option<K>, limit: usize) -> Self {
        Self { after, limit }
    }
}

impl<K: Ord + ToString> Page<K> {
    /// Selects the entries of the page, sorted by their key.
    pub fn select<T>(self, entries: Vec<T>, key: impl Fn(&T) -> K) -> Selected<T> {
        let mut entries: Vec<T> = entries
            .into_iter()
            .filter(|entry| self.after.as_ref().is_none_or(|after| key(entry) > *after))
            .collect();
        entries.sort_by_key(&key);
        let mut next_cursor = None;
        if entries.len() > self.limit {
            entries.truncate(self.limit);
            next_cursor = entries.last().map(|entry| key(entry).to_string());
        }
        Selected {
            entries,
            next_cursor,
        }
    }
}

/// The entries of a page, and the `nextCursor`.
#[derive(Debug)]
pub struct Selected<T> {
    pub entries: Vec<T>,
    pub next_cursor: Option<String>,
}

impl<G: Send + Sync> FromRequestParts<G> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &G) -> Result<Self, ApiError> {
        let Query(mut pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|_| ApiError::invalid("", "the query string is malformed"))?;
        // The policy has already checked the ticket. Clients that cannot send headers use it instead of a
        // key.
        pairs.retain(|(name, _)| name != "ticket");
        Ok(Self(pairs))
    }
}

/// Rejects every parameter, for routes that have none.
#[derive(Debug)]
pub(crate) struct NoQuery;

impl<G: Send + Sync> FromRequestParts<G> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &G) -> Result<Self, ApiError> {
        Params::from_request_parts(parts, state)
            .await?
            .finish()
            .map(|()| Self)
    }
}
