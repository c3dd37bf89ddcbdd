//! Files of the session that a client attaches to a prompt: embedded if the agent accepts it, otherwise
//! linked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use crate::session::context::Context;
use crate::session::error::{InputError, SessionError, WorkspaceError};
use crate::session::query::SessionQuery;
use events::api::{AttachAs, Attachment, FieldError};
use wire::acp::{FileBlock, FileContent, PromptCapabilities, append_blocks, file_uri};
use workspace::{FileError, RealFile, Workspace, media_type, text};

const MAX_ATTACHMENTS: usize = 64;

pub(super) async fn append_attachments(
    context: &Context,
    session: SessionQuery<'_>,
    blocks: Box<RawValue>,
    attachments: Vec<Attachment>,
) -> Result<Box<RawValue>, WorkspaceError> {
    if attachments.is_empty() {
        return Ok(blocks);
    }
    if attachments.len() > MAX_ATTACHMENTS {
        return Err(
            InputError::invalid("/attachments", format!("at most {MAX_ATTACHMENTS}")).into(),
        );
    }
    let record = session.record().await?;
    let workspace = context.open_workspace(&record).await?;
    // These are the capabilities of the last attached process. A session had a process when it was created.
    let takes = record
        .prompt_capabilities
        .as_deref()
        .map(PromptCapabilities::parse_any_version)
        .unwrap_or_default();
    let room = context.limits.max_prompt_bytes;
    let text = context.limits.max_attached_text_bytes;
    let work = move || {
        let mut chooser = BlockBuilder {
            accepts: takes,
            text_bytes: text,
            remaining_bytes: room.saturating_sub(blocks.get().len()),
        };
        let files: Vec<Box<RawValue>> = attachments
            .iter()
            .enumerate()
            .map(|(at, attachment)| chooser.block(&workspace, at, attachment))
            .collect::<Result<_, _>>()?;
        append_blocks(&blocks, &files).ok_or_else(|| {
            InputError::invalid("/prompt", "expected an array of content blocks").into()
        })
    };
    context.shutdown.spawn_blocking(work).await?
}

struct BlockBuilder {
    accepts: PromptCapabilities,
    /// The largest text, in bytes, that is embedded without a request for it.
    text_bytes: u64,
    /// The number of bytes that the prompt may still grow.
    remaining_bytes: usize,
}

impl BlockBuilder {
    fn block(
        &mut self,
        workspace: &Workspace,
        at: usize,
        attachment: &Attachment,
    ) -> Result<Box<RawValue>, WorkspaceError> {
        let rejected = |error: FileError| -> WorkspaceError {
            match error {
                FileError::OutsideRoots => {
                    InputError::Forbidden(format!("/attachments/{at}/path: {error}")).into()
                }
                FileError::TooLarge(_) => too_large(at).into(),
                FileError::Io(_) | FileError::DiskFull => SessionError::internal(&error).into(),
                _ => {
                    InputError::invalid(format!("/attachments/{at}/path"), error.to_string()).into()
                }
            }
        };
        let file = workspace.open_real(&attachment.path).map_err(rejected)?;
        let name = file
            .path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let media = media_type(&name);
        let kind = match attachment.kind {
            Some(kind) => self.check_kind(kind, at, media).map(|()| kind)?,
            None => self.choose_kind(&file, media).map_err(rejected)?,
        };
        let uri = file_uri(&file.path.to_string_lossy());
        let bytes = if kind == AttachAs::ResourceLink {
            Vec::new()
        } else {
            let content = file.file.read(self.remaining_bytes as u64);
            content.map_err(rejected)?
        };
        let mime_type = media.unwrap_or_default();
        let block = match kind {
            AttachAs::ResourceLink => FileBlock::ResourceLink {
                uri: &uri,
                name: &name,
                mime_type: media,
                size: file.file.stat.size,
            },
            AttachAs::Resource => FileBlock::Resource {
                resource: resource(&bytes, &uri, media),
            },
            AttachAs::Image => FileBlock::Image {
                data: STANDARD.encode(&bytes),
                mime_type,
                uri: &uri,
            },
            AttachAs::Audio => FileBlock::Audio {
                data: STANDARD.encode(&bytes),
                mime_type,
            },
        };
        let block = block.to_raw();
        // Add one byte for the comma between two blocks.
        self.remaining_bytes = self
            .remaining_bytes
            .checked_sub(block.get().len() + 1)
            .ok_or_else(|| too_large(at))?;
        Ok(block)
    }

    fn check_kind(&self, kind: AttachAs, at: usize, media: Option<&str>) -> Result<(), InputError> {
        let pointer = format!("/attachments/{at}/as");
        let (accepted, what, family) = match kind {
            AttachAs::ResourceLink => return Ok(()),
            AttachAs::Resource => (self.accepts.embedded_context, "embedded resources", ""),
            AttachAs::Image => (self.accepts.image, "images", "image/"),
            AttachAs::Audio => (self.accepts.audio, "audio", "audio/"),
        };
        if !accepted {
            let detail = format!("the agent does not accept {what}");
            return Err(InputError::ContentUnsupported(FieldError {
                pointer,
                detail,
            }));
        }
        if media.unwrap_or_default().starts_with(family) {
            Ok(())
        } else {
            Err(InputError::invalid(
                pointer,
                "the file name has another media type",
            ))
        }
    }

    fn choose_kind(&self, file: &RealFile, media: Option<&str>) -> Result<AttachAs, FileError> {
        let size = file.file.stat.size;
        let family = media.unwrap_or_default().split('/').next();
        // Base64 encodes three bytes as four. The other members of a block are short.
        let fits = size.saturating_mul(4) / 3 + 1024 <= self.remaining_bytes as u64;
        let is_text = || {
            Ok::<_, FileError>(
                text(
                    &file
                        .file
                        .read_at(0, usize::try_from(size).unwrap_or_default())?,
                )
                .is_some(),
            )
        };
        Ok(match family {
            Some("image") if self.accepts.image && fits && media != Some("image/svg+xml") => {
                AttachAs::Image
            }
            Some("audio") if self.accepts.audio && fits => AttachAs::Audio,
            _ if self.accepts.embedded_context && fits && size <= self.text_bytes && is_text()? => {
                AttachAs::Resource
            }
            _ => AttachAs::ResourceLink,
        })
    }
}

fn resource<'a>(bytes: &'a [u8], uri: &'a str, mime_type: Option<&'a str>) -> FileContent<'a> {
    match text(bytes) {
        Some(text) => FileContent::Text {
            uri,
            text,
            mime_type,
        },
        None => FileContent::Blob {
            uri,
            blob: STANDARD.encode(bytes),
            mime_type,
        },
    }
}

fn too_large(at: usize) -> InputError {
    InputError::TooLarge(format!(
        "/attachments/{at}: the prompt with its attachments is too large"
    ))
}
