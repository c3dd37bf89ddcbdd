//! What of ACP the gateway covers: the schema crate's own list against the table of the API's guide.

pub(crate) mod schema;
