// Generated from openapi/openapi.json by `npm run types`. Do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description The level of access of a user to a session. Each level includes the ones before it. */
        Access: components["schemas"]["KnownAccess"];
        /** @description The request `session/prompt` of a client of `/acp`. The client gets its response at the end of the turn. */
        AcpRequest: {
            /** @description The client, which keeps its name when it reconnects. */
            client: string;
            /** @description The JSON-RPC id of the request, as the client sent it. */
            id: unknown;
        };
        /** @description An update of ACP, exactly as the agent sent it. `sessionUpdate` is its kind, which determines the other members: an `agent_message_chunk` has a ContentBlock in `content`, a `tool_call` has `toolCallId`, `title` and `status`. */
        AcpUpdate: {
            sessionUpdate: string;
        } & {
            [key: string]: unknown;
        };
        ActorKind: components["schemas"]["KnownActorKind"];
        /**
         * @description An agent of the catalogue. Members that only a process of the agent can report are null until a process
         *     has started.
         */
        Agent: {
            /** @description The agent's `agentInfo` from `initialize`, raw ACP. */
            agentInfo: {
                [key: string]: unknown;
            } | null;
            /** @description The agent's sign-in methods from `initialize`, raw ACP. */
            authMethods: {
                [key: string]: unknown;
            }[] | null;
            /** @description The agent's capabilities from `initialize`, raw ACP. */
            capabilities: {
                [key: string]: unknown;
            } | null;
            /** @description The protocol of the agent. Clients use the same requests and events for all of them. */
            dialect: components["schemas"]["AgentDialect"];
            isolation: components["schemas"]["AppliedIsolation"] | null;
            /** @description How the gateway reaches the agent. */
            kind: components["schemas"]["AgentKind"];
            /** @description The name of the agent in requests. */
            name: components["schemas"]["AgentName"];
            pool: components["schemas"]["PoolFigures"];
            /**
             * Format: int64
             * @description The negotiated version of ACP.
             */
            protocolVersion: number | null;
            status: components["schemas"]["AgentStatus"];
            /** @description The display name. */
            title: string | null;
            /** @description The version that the agent reports. */
            version: string | null;
        };
        /** @description The sign-in state of an agent. */
        AgentAuth: {
            /** @description The agent's sign-in methods, raw ACP. Null until a process has started. */
            authMethods: {
                [key: string]: unknown;
            }[] | null;
            /** @description True if the agent supports signing out. */
            canLogout: boolean;
            /**
             * @description `authenticated`, `unauthenticated`, `not_required` or `unknown`. The agent reports the state if it
             *     supports `auth/status`. Otherwise the gateway derives it from the results of earlier sessions.
             */
            state: string;
            /** @description The agent's answer to `auth/status`, raw ACP; null if the agent does not support it. */
            status: {
                [key: string]: unknown;
            } | null;
            /** @description True if the gateway offers sign-in methods of type `terminal`. */
            terminalAuth: boolean;
        };
        /** @description The state of an agent for new sessions. */
        AgentAvailability: components["schemas"]["KnownAgentAvailability"];
        /** @description An agent with its latest failure. */
        AgentDiagnostics: {
            lastFailure: components["schemas"]["LastAgentFailure"] | null;
            name: components["schemas"]["AgentName"];
            pool: components["schemas"]["PoolFigures"];
            status: components["schemas"]["AgentStatus"];
        };
        /** @description The protocol of an agent. Agents on other hosts use ACP. */
        AgentDialect: components["schemas"]["KnownAgentDialect"];
        /** @description The process that held the session ended. */
        AgentExitedEvent: {
            /** @description Why the connection ended, if the agent is not a child process of the gateway. */
            disconnected?: string | null;
            /** @description The limit of the agent's entry for which the kernel killed the process. */
            exceededLimit?: string | null;
            /** Format: int32 */
            exitCode: number | null;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            signal: string | null;
            /** @description The last output of the process to stderr. */
            stderrTail: string;
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "agent.exited";
        };
        /** @description The agent wrote lines to stdout that are not JSON-RPC. */
        AgentInvalidOutputEvent: {
            /** Format: int64 */
            bytes: number;
            /** @description The start of the first line, at most 300 bytes, without the secrets that the agent received. */
            excerpt: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** Format: int64 */
            lines: number;
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "agent.invalid_output";
        };
        /** @description How the gateway reaches an agent. */
        AgentKind: components["schemas"]["KnownAgentKind"];
        /** @description The catalogue of agents. */
        AgentList: {
            agents: components["schemas"]["Agent"][];
            /** @description Always null: the catalogue is one page. */
            nextCursor: string | null;
        };
        /** @description The name of an agent in the catalogue. */
        AgentName: string;
        /** @description A known agent whose command is on PATH. */
        AgentOnPath: {
            /** @description The program. */
            command: string;
            /** @description The variables of which one can contain the key of the agent. */
            keyVariables: string[];
            /** @description The name of the known agent, which becomes that of its entry. */
            name: components["schemas"]["AgentName"];
        };
        /** @description A process of an agent, or a connection to a remote agent. */
        AgentProcess: {
            /**
             * Format: uuid
             * @description The id of the process from its start to its end. It is not a process id of the operating system.
             */
            agentId: string;
            currentTask: components["schemas"]["CurrentTask"] | null;
            state: components["schemas"]["ProcessState"];
            /**
             * Format: int64
             * @description The time in seconds since the gateway started the process. After a restart of the gateway, the time of a process that
             *     outlived it begins again.
             */
            uptimeSeconds: number;
        };
        /** @description The processes of an agent, the oldest first. */
        AgentProcessList: {
            /** @description The `cursor` of the next page; null on the last page. */
            nextCursor: string | null;
            processes: components["schemas"]["AgentProcess"][];
        };
        /** @description The gateway refused requests of an agent by policy. */
        AgentRequestRefusedEvent: {
            actor: components["schemas"]["AuditActor"];
            /**
             * Format: int64
             * @description The number of requests since the last event with this session, method and reason.
             */
            count: number;
            firstTime: components["schemas"]["Timestamp"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            lastTime: components["schemas"]["Timestamp"];
            /** @description The ACP method. */
            method: string;
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            reason: components["schemas"]["RefuseReason"];
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "agent.request_refused";
        };
        /** @description A session in the list of the agent, with all members that the agent reports. */
        AgentSession: {
            /** @description The agent's id of the session. */
            agentSessionId: string;
            /** @description The working directory, below a workspace root. */
            cwd: string;
            /** @description The session id in the gateway, if the session was created or adopted there. */
            sessionId: string | null;
            title?: string | null;
            updatedAt?: string | null;
        } & {
            [key: string]: unknown;
        };
        /** @description A page of the sessions that an agent lists. */
        AgentSessionList: {
            /** @description The agent's own cursor for the next page; null on the last page. */
            nextCursor: string | null;
            /** @description Sessions whose directory is below a workspace root. */
            sessions: components["schemas"]["AgentSession"][];
        };
        /** @description Whether an agent can start sessions. */
        AgentStatus: {
            /** @description The reason of the state `unavailable`: the error of the last start. Null in the other states. */
            detail: string | null;
            state: components["schemas"]["AgentAvailability"];
        };
        /** @enum {string} */
        AllTargets: "all";
        /** @description The isolation of a process: the requested level and the means that applies it. */
        AppliedIsolation: {
            /** @description True if the gateway has switched off the agent's own sandbox, because it fails with Landlock. Absent otherwise. */
            agentSandboxOff?: boolean;
            level: components["schemas"]["Isolation"];
            mechanism: components["schemas"]["Mechanism"];
        };
        /**
         * @description Types of content blocks for attachments.
         * @enum {string}
         */
        AttachAs: "resource_link" | "resource" | "image" | "audio";
        /** @description The attach of a session. */
        AttachSession: {
            /** @description The conversation that the agent continues. Default: `kept`. */
            context?: components["schemas"]["RequestedContext"];
        };
        /** @description The way in which a process received a session. */
        AttachedBy: components["schemas"]["KnownAttachedBy"];
        /** @description A file of the session to attach to a prompt. */
        Attachment: {
            /**
             * @description The type of the content block. By default, an image, an audio file or a short text is embedded if the
             *     agent supports it. Any other file becomes a link.
             */
            as?: components["schemas"]["AttachAs"];
            /** @description The path in the form that the file routes accept: relative to `cwd`, or absolute. */
            path: string;
        };
        /** @description The result of a sign-in to an agent, or of an installation. */
        AttemptOutcome: components["schemas"]["KnownAttemptOutcome"];
        /** @description An audio recording. */
        AudioBlock: {
            /** @description Base64. */
            data: string;
            mimeType: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "audio";
        } & {
            [key: string]: unknown;
        };
        /** @description The party that caused an event. */
        AuditActor: {
            /** @description The address of the client. An IPv6 address of a client without a key is that of its /64 network. */
            address?: string;
            /** @description The `X-Request-Id` of the HTTP request. A WebSocket has that of the request that opened it. */
            httpRequestId?: string;
            /** @description The public id of the key of a request. */
            keyId?: string;
            kind: components["schemas"]["ActorKind"];
            /** @description The name of the user, or of the agent. */
            name?: string;
        };
        /** @description An event of the audit log of a previous gateway about a session that was imported. This log did not record it. */
        AuditEventImportedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The event. Its `id`, `seq`, `previous` and `sessionId` are those of the previous gateway. */
            event: {
                [key: string]: unknown;
            };
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "audit.imported";
        };
        /** @description An event of the audit log. `type` selects the schema. Clients must ignore unknown types. */
        AuditLogEvent: components["schemas"]["KnownAuditLogEvent"];
        /** @description A page of the audit log. */
        AuditPage: {
            events: components["schemas"]["AuditLogEvent"][];
            /** @description The cursor for `after` on the next page. */
            lastEventId: string;
            /** @description True if more events exist. */
            more: boolean;
        };
        /** @description Retention deletes the events up to `throughSeq`. */
        AuditPrunedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            /** Format: int64 */
            throughSeq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "audit.pruned";
        };
        /** @description A key without its text. */
        AuditedKey: {
            /** @description The public id of the key. */
            id: string;
            /** @description `link`, `local` or `named`. */
            kind: string;
            name: string;
            scopes: components["schemas"]["Scope"][];
            /** @description The user of the key, as `TENANT/NAME`. */
            user: string;
        };
        /** @description A state of a member of the fleet that began. */
        AuditedMemberState: components["schemas"]["KnownAuditedMemberState"];
        /** @description How a target got the message. */
        BroadcastDelivery: components["schemas"]["KnownBroadcastDelivery"];
        /**
         * @description The form in which the targets get the message.
         * @enum {string}
         */
        BroadcastForm: "notification" | "prompt";
        /** @description A target that did not get the message. */
        BroadcastNotReached: {
            /**
             * Format: uuid
             * @description The process that did not get the notification.
             */
            agentId?: string;
            /** @description An explanation for a person. */
            detail: string;
            kind: components["schemas"]["BroadcastTargetKind"];
            /** @description The name of the agent or of the member. Absent for a session. */
            name?: components["schemas"]["AgentName"];
            reason: components["schemas"]["BroadcastReason"];
            /** @description The session, or the session of the process. */
            sessionId?: components["schemas"]["SessionId"];
        };
        /** @description A target that got the message. */
        BroadcastReached: {
            /**
             * Format: uuid
             * @description The process that got the notification, as in `GET /v1/agents/{agent}/status`.
             */
            agentId?: string;
            delivery: components["schemas"]["BroadcastDelivery"];
            kind: components["schemas"]["BroadcastTargetKind"];
            /** @description The name of the agent or of the member. Absent for a session. */
            name?: components["schemas"]["AgentName"];
            /** @description The turn of a prompt. */
            promptId?: components["schemas"]["PromptId"];
            /** @description The session, or the session of the process. */
            sessionId?: components["schemas"]["SessionId"];
        };
        /** @description Why a target did not get the message. */
        BroadcastReason: components["schemas"]["KnownBroadcastReason"];
        /** @description The result of a broadcast for each target. */
        BroadcastReport: {
            /**
             * Format: uuid
             * @description The id of the broadcast, also in each message.
             */
            id: string;
            notReached: components["schemas"]["BroadcastNotReached"][];
            reached: components["schemas"]["BroadcastReached"][];
            type: components["schemas"]["BroadcastType"];
        };
        /** @description A client sent a broadcast. */
        BroadcastSentEvent: {
            actor: components["schemas"]["AuditActor"];
            broadcastId: string;
            /** @description The type of the request, for example `announcement`. */
            broadcastType: string;
            /** @description `notification` or `prompt`. */
            form: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** Format: int64 */
            notReached: number;
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of targets that got the message.
             */
            reached: number;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "broadcast.sent";
        };
        /** @description The kind of a target. */
        BroadcastTargetKind: components["schemas"]["KnownBroadcastTargetKind"];
        /** @description The targets: `"all"`, or lists of agents, sessions and members. */
        BroadcastTo: components["schemas"]["AllTargets"] | components["schemas"]["SelectedTargets"];
        /** @description The purpose of a broadcast, for its receivers. The gateway treats all of them alike. */
        BroadcastType: components["schemas"]["KnownBroadcastType"];
        /** @description The result of a bulk operation for one session. */
        BulkResult: {
            /** @description The reason why the operation did not change the session. */
            problem?: components["schemas"]["Problem"];
            sessionId: components["schemas"]["SessionId"];
            /**
             * Format: int32
             * @description The status of the operation for this session: 200 (closed), 204 (deleted), 202 (deletion accepted while the disk
             *     is full), or the status of `problem`.
             */
            status: number;
        };
        /** @description The result of a bulk operation for a batch of sessions. */
        BulkResults: {
            /** @description The `cursor` of the next batch; null if no other session matches. */
            nextCursor: string | null;
            /** @description One result for each session of the batch. */
            results: components["schemas"]["BulkResult"][];
        };
        /** @description Why the gateway asked the agent to end a turn, or ended a turn that was not sent. */
        CancelCause: components["schemas"]["KnownCancelCause"];
        /** @description The turns that the request cancelled. */
        Cancelled: {
            promptIds: components["schemas"]["PromptId"][];
        };
        /**
         * @description The output of one command of a tool call, from the members `terminal_info`, `terminal_output`,
         *     `terminal_output_delta` and `terminal_exit` of `_meta`.
         */
        CommandOutput: {
            cwd?: string;
            exitStatus: components["schemas"]["TerminalExit"] | null;
            /** @description The last MiB of the output. */
            output: string;
            /** @description The agent's id of the terminal. A content item of type `terminal` contains the same id. */
            terminalId: string;
            /** @description True if earlier output is omitted. The events contain it. */
            truncated: boolean;
        };
        /** @description A value of the configuration. */
        ConfigurationValue: {
            /** @description The section and the name, such as `server.listen`. */
            key: string;
            /** @description `default`, a file with a line, a variable of the environment, or a flag. */
            source: string;
            /** @description The value in the syntax of the file. */
            value: string;
        };
        /** @description A content block of ACP. `type` selects the schema. Agents with a later version of ACP may send other types. */
        ContentBlock: components["schemas"]["KnownContentBlock"];
        /** @description Whether the agent still has the earlier conversation. */
        Context: components["schemas"]["KnownContext"];
        /**
         * @description The agent could not restore the session. After this item, the agent does not have the earlier
         *     conversation.
         */
        ContextLost: {
            /** @description The time of the loss. */
            at: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "context_lost";
        };
        /** @description A message to many targets. */
        CreateBroadcast: {
            /** @default notification */
            as: components["schemas"]["BroadcastForm"];
            /** @description The text of the message. At most 64 KiB in UTF-8. */
            content: string;
            to: components["schemas"]["BroadcastTo"];
            type: components["schemas"]["KnownBroadcastType"];
        };
        /** @description A key to make. */
        CreateKey: {
            /**
             * Format: date-time
             * @description The time at which the key ends. Without it, the end of the key of the request, if it has one.
             */
            expiresAt?: string;
            /** @description 1 to 64 letters, digits, `.`, `_`, `-` or `@`. */
            name: string;
            /** @description Without it, the scopes of the key of the request. */
            scopes?: components["schemas"]["KnownScope"][];
        };
        /** @description A prompt: a text, or an array of ACP content blocks. */
        CreatePrompt: {
            /** @description Files of the session to attach. They follow the content blocks of the prompt. At most 64. */
            attachments?: components["schemas"]["Attachment"][];
            prompt: components["schemas"]["PromptContent"];
            /** @description If true and a turn is running, the prompt is queued. If false, the request fails with 409. */
            queue?: boolean;
        };
        /** @description A new session. */
        CreateSession: {
            /**
             * @description Additional `_meta` for the agent, sent at each set-up of the session. Only the keys in the agent's
             *     entry are allowed.
             */
            _meta?: {
                [key: string]: unknown;
            } | null;
            /** @description Further directories for the agent, below a workspace root. At most 64. */
            additionalDirectories?: string[];
            agent: components["schemas"]["AgentName"];
            /**
             * @description The id of an existing session of the agent. The gateway adopts it instead of creating a session.
             *     Requires the scope `admin`, and `cwd` if the agent cannot list its sessions.
             */
            agentSessionId?: string | null;
            /** @description Files of the session to attach to the first prompt. At most 64. */
            attachments?: components["schemas"]["Attachment"][];
            /**
             * @description Options of the agent to set before the first prompt: values by the ids of the options. At most 64. Requires
             *     the scope `approve`.
             */
            config?: {
                [key: string]: unknown;
            };
            /**
             * @description The working directory below the workspace root. A relative path is resolved against the workspace
             *     root. Default: a new directory.
             */
            cwd?: string | null;
            /** @description Names of MCP servers in the configuration (`[mcp.<name>]`). At most 64. */
            mcpServers?: components["schemas"]["McpServer"][];
            /** @description Arbitrary data of the client. */
            metadata?: {
                [key: string]: unknown;
            } | null;
            /** @description The mode to set before the first prompt. Requires the scope `approve`. */
            modeId?: string | null;
            policy?: components["schemas"]["SessionPolicyInput"] | null;
            prompt?: components["schemas"]["PromptContent"] | null;
            /** @description The title of the session. */
            title?: string | null;
        };
        /** @description A new task. */
        CreateTask: {
            agent: components["schemas"]["AgentName"];
            /**
             * Format: uri
             * @description An `https` URL of a host in `webhooks.allowed_hosts`. It gets the task when the task ends, as a webhook.
             */
            callbackUrl?: string;
            /** @description The working directory, as of a session. */
            cwd?: string;
            /**
             * Format: date-time
             * @description The time at which the gateway cancels the task, also if it is queued.
             */
            deadline?: string;
            /** @description The name of the task in lists. It is also the prompt if there is no `prompt`. */
            description?: string;
            /** @description Arbitrary data of the client. */
            metadata?: {
                [key: string]: unknown;
            };
            /**
             * Format: uuid
             * @description The task that needs this one. A chain of tasks has at most four levels.
             */
            parentTask?: string;
            /**
             * @description The policy for permission requests. By default, requests that the policy of the agent's entry does not allow
             *     are rejected after 5 seconds.
             */
            permissions?: components["schemas"]["PermissionPolicyInput"];
            priority?: components["schemas"]["KnownTaskPriority"];
            /** @description The prompt for the agent. */
            prompt?: components["schemas"]["PromptContent"];
            /**
             * Format: int64
             * @description The number of tokens after which the gateway cancels the task.
             */
            tokenBudget?: number;
        };
        /** @description A request for a ticket. */
        CreateTicket: {
            /**
             * @description The paths of the streams and sockets that the ticket opens, without a query, such as `/v1/events`. At
             *     most 64.
             */
            paths: components["schemas"]["StreamPath"][];
        };
        /** @description A request for a webhook. */
        CreateWebhook: {
            /** @description The event types that the webhook receives, each once. Possible are `session.created`, `session.attached`, `session.detached`, `session.changed`, `session.privileged_mode`, `session.closed`, `session.deleted`, `prompt.queued`, `prompt.changed`, `prompt.started`, `prompt.completed`, `prompt.failed`, `request.created`, `request.resolved`, `elicitation.completed`, `agent.exited`, `extension`, `task.ended`. */
            events: string[];
            /**
             * Format: uri
             * @description An `https` URL of a host in `webhooks.allowed_hosts`.
             */
            url: string;
        };
        /** @description A new key with its text. */
        CreatedKey: components["schemas"]["KeyInfo"] & {
            /** @description The text of the key. The gateway does not store it. */
            key: string;
        };
        /** @description The running turn of a process. */
        CurrentTask: {
            promptId: components["schemas"]["PromptId"];
            sessionId: components["schemas"]["SessionId"];
            /** @description When the process got the turn. */
            startedAt: components["schemas"]["Timestamp"];
        };
        /** @description The reason why a session lost its process. */
        DetachedReason: components["schemas"]["KnownDetachedReason"];
        /**
         * @description The state of the gateway. It contains no text of prompts and answers, unless an agent writes it to its stderr. Secrets from
         *     `from_env`, `from_file` and variables are masked.
         */
        Diagnostics: {
            /** @description All agents, sorted by name. */
            agents: components["schemas"]["AgentDiagnostics"][];
            /**
             * @description All values of the configuration, as `acp-gateway check --all` prints them. Environment variables and headers have no
             *     values.
             */
            configuration: components["schemas"]["ConfigurationValue"][];
            /** @description Whether the gateway is stopping. */
            draining: boolean;
            /** @description The latest records of the log with the level `warn` or `error`, the newest first. */
            logs: components["schemas"]["LogRecord"][];
            /** @description The operating system and the processor, such as `linux/x86_64`. */
            platform: string;
            process: components["schemas"]["GatewayProcess"];
            /** @description At most 200 processes of agents, the oldest first. */
            processes: components["schemas"]["ProcessFigures"][];
            /** @description Whether `/readyz` responds with 200. */
            ready: boolean;
            /** Format: date-time */
            startedAt: string;
            store: components["schemas"]["StoreFigures"];
            /** @description The open streams and held requests, by kind. */
            streams: {
                [key: string]: number;
            };
            tasks: components["schemas"]["TaskFigures"];
            /** Format: date-time */
            time: string;
            /** @description The lists of this document from which entries are missing because of the limit of their size. */
            truncated: string[];
            /** Format: int64 */
            uptimeSeconds: number;
            version: string;
            /**
             * Format: int64
             * @description The deliveries of webhooks that wait.
             */
            webhooksPending: number;
        };
        /**
         * @description The action in an answer to an elicitation.
         * @enum {string}
         */
        ElicitationAction: "accept" | "decline" | "cancel";
        /** @description The answer to an elicitation. */
        ElicitationAnswer: {
            action: components["schemas"]["ElicitationAction"];
            /** @description The values of the form. Only with the action `accept`. */
            content?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description The agent reported that an elicitation with mode `url` is complete. */
        ElicitationCompletedEvent: {
            elicitationId: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description Other members that the agent sent, raw. */
            more?: {
                [key: string]: unknown;
            };
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "elicitation.completed";
        };
        /** @description The content of a resource: `text`, or `blob` in base64. */
        EmbeddedResource: {
            blob?: string;
            mimeType?: string | null;
            text?: string;
            uri: string;
        } & {
            [key: string]: unknown;
        };
        /** @description The last frame of a complete stream. A stream that ends without `end` or `shutdown` was interrupted. */
        EndEvent: {
            id?: string;
            /** @description The client's cursor after this stream. It equals the `id` of the frame. */
            lastEventId: string;
            reason: components["schemas"]["EndReason"];
            sessionId?: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "end";
        };
        /** @description The reason why a stream is complete. */
        EndReason: components["schemas"]["KnownEndReason"];
        ErrorAnswer: {
            error: components["schemas"]["RpcError"];
        };
        /** @description The id of an event in its session: the epoch of the session and a number without gaps. */
        EventId: string;
        /** @description A page of events. */
        EventPage: {
            events: components["schemas"]["SessionEvent"][];
            /** @description The cursor for `after` on the next page. */
            lastEventId: string;
            /** @description True if more events exist. */
            more: boolean;
        };
        /** @description The form in which a session was exported. */
        ExportForm: components["schemas"]["KnownExportForm"];
        /** @description A notification that the gateway does not know. */
        ExtensionEvent: {
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            method: string;
            params: unknown;
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The agent's id of the child session that sent the notification. */
            subagent?: string;
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "extension";
        };
        /** @description An invalid member of a body or a query. */
        FieldError: {
            /** @description The reason why the member is invalid. */
            detail: string;
            /** @description A JSON pointer into the body, or the name of a query parameter. */
            pointer: string;
        };
        /** @description A file that differs from its state at the start of the session. */
        FileChange: {
            /**
             * Format: int64
             * @description The number of added lines; null unless both texts are known.
             */
            additions: number | null;
            /** @description Whether the content is or was not text. */
            binary: boolean;
            /**
             * Format: int64
             * @description The number of deleted lines; null unless both texts are known.
             */
            deletions: number | null;
            kind: components["schemas"]["FileChangeKind"];
            /** @description The path relative to `cwd`, for the other routes of changes and for those of files. */
            path: string;
            /** @description Whether a content is too large to be shown (1 MiB), cannot be read, or was not stored at the start. */
            tooLarge: boolean;
        };
        /** @description The kind of a change. */
        FileChangeKind: components["schemas"]["KnownFileChangeKind"];
        /** @description The changes of the working folder of a session, sorted by path. */
        FileChangeList: {
            /** @description False if changes may be missing in the list, or old contents. */
            complete: boolean;
            files: components["schemas"]["FileChange"][];
            /** @description Whether there are more changes than all pages of the list contain. */
            more: boolean;
            /** @description The `cursor` of the next page; null on the last page. */
            nextCursor: string | null;
            /** @description Why the list is not complete; null if it is. */
            reason: string | null;
            /** @description The time of the state with which the folder is compared. */
            since: components["schemas"]["Timestamp"];
        };
        /** @description The texts of a changed file. */
        FileChangeText: {
            /** @description The `ETag` of the current file, for `If-Match` of a revert or a write; null for a deleted file. */
            etag: string | null;
            kind: components["schemas"]["FileChangeKind"];
            /** @description The current text; null for a deleted file. */
            newText: string | null;
            /** @description The text at the start of the session; null for an added file. */
            oldText: string | null;
            path: string;
        };
        /**
         * Format: binary
         * @description The bytes of a file.
         */
        FileContent: string;
        /** @description An entry in a list of files. */
        FileEntry: {
            /** @description The media type by the suffix of the name; null if the suffix is unknown. */
            mimeType: string | null;
            modifiedAt: components["schemas"]["Timestamp"];
            name: string;
            /**
             * @description The path in the form that the file routes accept: relative to `cwd`, or absolute in an additional
             *     directory.
             */
            path: string;
            /**
             * Format: int64
             * @description The size in bytes; null unless the entry is a file.
             */
            size: number | null;
            type: components["schemas"]["FileKind"];
        };
        /** @description The type of an entry in a list of files. */
        FileKind: components["schemas"]["KnownFileKind"];
        /** @description A page of files. */
        FileList: {
            files: components["schemas"]["FileEntry"][];
            /** @description The cursor of the next page; null on the last page. */
            nextCursor: string | null;
        };
        /** @description A member of the fleet. The member itself chooses its name, its capacity, its version and its metadata. */
        FleetMember: {
            /** @description The number of processes that the member runs at the same time. */
            capacity: number;
            /** @description True if the member gets no new processes. */
            draining: boolean;
            /** @description The user to whom the name of the member belongs. */
            key: string;
            /**
             * Format: date-time
             * @description The time at which the member last sent a message. Null if it has not connected since the start of the gateway.
             */
            lastHeartbeatAt: string | null;
            /**
             * Format: int64
             * @description The latest round-trip time in milliseconds. Null until it is measured.
             */
            latencyMs: number | null;
            metadata: {
                [key: string]: string;
            };
            /** @description The name of the member and of its agent. */
            name: components["schemas"]["AgentName"];
            /** @description The number of processes that run at the member for this gateway. */
            processes: number;
            /** @description The folders of the member in which sessions may work. The first one is the default `cwd`. */
            roots: string[];
            /**
             * Format: date-time
             * @description The time at which the state began. It is the start of the connection of a connected member.
             */
            since: string;
            state: components["schemas"]["FleetMemberState"];
            /** @description The version of the program that connects. */
            version: string;
        };
        /** @description The state of a member of the fleet changed. For a user, the log has at most 60 of these events a minute. */
        FleetMemberChangedEvent: {
            actor: components["schemas"]["AuditActor"];
            /**
             * Format: int32
             * @description The number of failed attempts since the last connection, which the member reports in `connected`.
             */
            attempt: number;
            /** @description The cause of the state. For `connected`, it is the cause of the last failed attempt, which the member reports. */
            error?: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The user to whom the name of the member belongs. */
            key: string;
            member: components["schemas"]["AgentName"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            state: components["schemas"]["AuditedMemberState"];
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "fleet.member_changed";
        };
        /** @description The members of the fleet. */
        FleetMemberList: {
            members: components["schemas"]["FleetMember"][];
            /** @description The `cursor` of the next page; null on the last page. */
            nextCursor: string | null;
        };
        /** @description The state of the connection of a member. */
        FleetMemberState: components["schemas"]["KnownFleetMemberState"];
        /** @description The owner of the data folder granted a folder to the key of an `attach` process. */
        FolderGrantedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The real path of the folder. */
            folder: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            key: components["schemas"]["AuditedKey"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "folder.granted";
        };
        /** @description The gateway, and the user of the request. */
        GatewayInfo: {
            /** @description The token of the store. Positions of `/v1/events` start with it. The ids of events start with a token of their session. */
            epoch: string;
            limits: components["schemas"]["GatewayLimits"];
            /** @description Always `acp-gateway`. */
            name: string;
            principal: components["schemas"]["PrincipalInfo"];
            /** @description The scopes of the key. */
            scopes: components["schemas"]["Scope"][];
            version: string;
        };
        /** @description The limits that apply to clients. `perSession` and `perKey` correspond to sections of the configuration. */
        GatewayLimits: {
            /**
             * Format: int64
             * @description The time in seconds for which an `Idempotency-Key` is remembered.
             */
            idempotencyKeyMaxAgeSeconds: number;
            /** @description The maximum size of a request body in bytes. */
            maxBodyBytes: number;
            /**
             * Format: int64
             * @description The maximum size of an uploaded file in bytes.
             */
            maxFileBytes: number;
            /** @description The maximum size of a body with a prompt or an answer, in bytes. */
            maxPromptBytes: number;
            perKey: components["schemas"]["PerKeyLimits"];
            perSession: components["schemas"]["PerSessionLimits"];
        };
        /** @description The process of the gateway, without agents. A number is null if Linux does not report it. */
        GatewayProcess: {
            /**
             * Format: double
             * @description The processor time.
             */
            cpuSeconds: number;
            /**
             * Format: int64
             * @description The limit of open file descriptors. Null without a limit.
             */
            maxOpenFiles: number | null;
            /**
             * Format: int64
             * @description The resident memory.
             */
            memoryBytes: number | null;
            /**
             * Format: int64
             * @description The open file descriptors.
             */
            openFiles: number | null;
        };
        /** @description An access to one session, which an owner of the session gave to others. */
        Grant: {
            access: components["schemas"]["Access"];
            grantedAt: components["schemas"]["Timestamp"];
            /** @description The name of the user that gave it. */
            grantedBy: string;
            /** @description `user:NAME`, `group:NAME`, or `tenant` for all users of the tenant. */
            grantee: string;
        };
        /** @description A grant of a session was taken back. */
        GrantRemovedEvent: {
            actor: components["schemas"]["AuditActor"];
            grantee: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "grant.removed";
        };
        /** @description A session was shared with users, or the access that a grant gives was changed. */
        GrantSetEvent: {
            access: components["schemas"]["Access"];
            actor: components["schemas"]["AuditActor"];
            /** @description `user:NAME`, `group:NAME` or `tenant`. */
            grantee: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "grant.set";
        };
        /** @description An image. */
        ImageBlock: {
            /** @description Base64. */
            data: string;
            mimeType: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "image";
            uri?: string | null;
        } & {
            [key: string]: unknown;
        };
        /** @description An agent of the registry. */
        InstallableAgent: {
            description: string;
            /** @description The id for an installation. */
            id: string;
            /** @description The variables of which one can contain the key of the agent. Empty if the gateway does not know the agent. */
            keyVariables: string[];
            /** @description The distributions for this machine: `binary`, `npx` or `uvx`. Empty if there is none. */
            kinds: string[];
            name: string;
            version: string;
        };
        /** @description The agents of the registry. */
        InstallableAgentList: {
            agents: components["schemas"]["InstallableAgent"][];
            /** @description Whether `registry.source` names a registry. */
            configured: boolean;
            /** @description The `cursor` of the next page; null on the last page. */
            nextCursor: string | null;
        };
        /** @description An agent that is being added to the configuration. */
        Installation: {
            agent: components["schemas"]["AgentName"];
            /**
             * Format: int64
             * @description The bytes of the download so far. Null in other steps.
             */
            bytes: number | null;
            /** @description The file with the new entry. Null if the gateway offers the agent without one. */
            configFile: string | null;
            /** @description The reason of a failure, with the next step. */
            detail: string | null;
            from: components["schemas"]["InstallationSource"];
            /** @description Whether the agent receives a key variable that the gateway's environment gets later. Otherwise its entry must have it. */
            inherits: boolean;
            /** @description The variables of which one can contain the key of the agent. */
            keyVariables: string[];
            /** @description The variables of the gateway's environment that the agent receives. */
            receivedVariables: string[];
            /** @description The names of the sign-in methods that the agent offers. */
            signIn: string[];
            status: components["schemas"]["InstallationStatus"];
            /** @description The current or the last step, such as `downloading agent.tar.gz`. Null before the first one. */
            step: string | null;
            /**
             * Format: int64
             * @description The size of the download, if the server reports it.
             */
            totalBytes: number | null;
        };
        /** @description It ended. After `succeeded`, the configuration file has an entry for the agent. */
        InstallationEndedEvent: {
            actor: components["schemas"]["AuditActor"];
            agent: components["schemas"]["AgentName"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            outcome: components["schemas"]["AttemptOutcome"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "installation.ended";
        };
        InstallationSource: components["schemas"]["KnownInstallationSource"];
        /** @description The gateway began to add an agent to its configuration. */
        InstallationStartedEvent: {
            actor: components["schemas"]["AuditActor"];
            agent: components["schemas"]["AgentName"];
            from: components["schemas"]["InstallationSource"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "installation.started";
            /** @description The version in the registry. */
            version?: string;
        };
        /** @description The agents that this gateway can add without a download, its registry, and the latest installation. */
        InstallationState: {
            installation: components["schemas"]["Installation"] | null;
            /** @description The known agents whose command is on PATH and that have no entry. Empty if the gateway has more users than its operator. */
            onPath: components["schemas"]["AgentOnPath"][];
            registry: components["schemas"]["RegistryInfo"] | null;
        };
        InstallationStatus: components["schemas"]["KnownInstallationStatus"];
        /** @description The level that the operator requests for an agent. */
        Isolation: components["schemas"]["KnownIsolation"];
        /** @description An agent process started under this isolation. */
        IsolationAppliedEvent: {
            actor: components["schemas"]["AuditActor"];
            agent: components["schemas"]["AgentName"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The level that the configuration requests. */
            level: components["schemas"]["Isolation"];
            /** @description The means that applies the level. */
            mechanism: components["schemas"]["Mechanism"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int32
             * @description The process id of the agent on the host.
             */
            processId: number;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "isolation.applied";
            /**
             * Format: int32
             * @description The user id of the agent on the host. `null`: that of the gateway.
             */
            userId?: number | null;
        };
        /** @description A key was created: by a command or its user, for the link of a start, or for an `attach` process. */
        KeyCreatedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            key: components["schemas"]["AuditedKey"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "key.created";
        };
        /** @description A key was deleted: its time ended, or a link key or local key was not used for `auth.link_key_idle_timeout`. */
        KeyExpiredEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            key: components["schemas"]["AuditedKey"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "key.expired";
        };
        /** @description A key without its text and its hash. */
        KeyInfo: {
            /**
             * Format: date-time
             * @description Null for the key of the configuration.
             */
            createdAt: string | null;
            /**
             * Format: date-time
             * @description The time at which the key ends. The use of a link key or a local key delays it. Null if the key does not end.
             */
            expiresAt: string | null;
            /** @description The folders outside of the workspace roots that the key may use. */
            folders: string[];
            /** @description Whether the request has this key. Only in lists over HTTP. */
            isCurrent?: boolean;
            /** @description The public id of the key. */
            keyId: string;
            kind: components["schemas"]["KeyKind"];
            /**
             * Format: date-time
             * @description Null for a key without a use, and for the key of the configuration.
             */
            lastUsedAt: string | null;
            /** @description The limits of the user that differ from `[limits.per_key]`, by their configuration keys. */
            limits: {
                [key: string]: number;
            };
            /** @description The only names that members of the fleet may use with the key. Empty: all names except those of known agents. */
            memberNames: components["schemas"]["AgentName"][];
            name: string;
            scopes: components["schemas"]["Scope"][];
            tenant: string;
            /** @description The user to whom the key gives access. Sessions and limits belong to the user. */
            user: string;
        };
        /** @description The origin of a key. */
        KeyKind: components["schemas"]["KnownKeyKind"];
        /** @description Keys. */
        KeyList: {
            keys: components["schemas"]["KeyInfo"][];
            /** @description The `cursor` of the next page; null on the last page. */
            nextCursor: string | null;
        };
        /**
         * @description A key was revoked: by a command or its user, at the end of an `attach` process, or because there were too many link keys or local
         *     keys.
         */
        KeyRevokedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            key: components["schemas"]["AuditedKey"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "key.revoked";
        };
        /** @description A user replaced a key, or a reload of the configuration that of the operator. `null`: there was or is none. */
        KeyRotatedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            keyId?: string | null;
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            previousKeyId?: string | null;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "key.rotated";
        };
        /** @description The scopes of a key changed, or the limits of its user. `key` has the new scopes. */
        KeyUpdatedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            key: components["schemas"]["AuditedKey"];
            /** @description Whether limits of the user changed. */
            limitsChanged: boolean;
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            previousScopes: components["schemas"]["Scope"][];
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "key.updated";
        };
        /** @description A client used a key from a network from which nobody has used it before, or not recently. */
        KeyUsedFromNewNetworkEvent: {
            actor: components["schemas"]["AuditActor"];
            /** Format: int64 */
            count: number;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "key.used_from_new_network";
        };
        /**
         * @description The level of access of a user to a session. Each level includes the ones before it.
         * @enum {string}
         */
        KnownAccess: "read" | "prompt" | "approve" | "own";
        /** @enum {string} */
        KnownActorKind: "key" | "client" | "command_line" | "policy" | "timeout" | "agent" | "gateway";
        /**
         * @description The state of an agent for new sessions.
         * @enum {string}
         */
        KnownAgentAvailability: "available" | "unavailable" | "reconnecting" | "disconnected" | "draining";
        /**
         * @description The protocol of an agent. Agents on other hosts use ACP.
         * @enum {string}
         */
        KnownAgentDialect: "acp" | "stream-json" | "early-acp";
        /**
         * @description How the gateway reaches an agent.
         * @enum {string}
         */
        KnownAgentKind: "local" | "remote" | "fleet";
        /**
         * @description The way in which a process received a session.
         * @enum {string}
         */
        KnownAttachedBy: "new" | "resume" | "load" | "fresh" | "fork" | "adopt";
        /**
         * @description The result of a sign-in to an agent, or of an installation.
         * @enum {string}
         */
        KnownAttemptOutcome: "succeeded" | "failed" | "aborted";
        /** @description An event of the audit log. `type` selects the schema. Clients must ignore unknown types. */
        KnownAuditLogEvent: components["schemas"]["KeyCreatedEvent"] | components["schemas"]["KeyUpdatedEvent"] | components["schemas"]["KeyRevokedEvent"] | components["schemas"]["UserCreatedEvent"] | components["schemas"]["UserUpdatedEvent"] | components["schemas"]["FolderGrantedEvent"] | components["schemas"]["KeyExpiredEvent"] | components["schemas"]["KeyRotatedEvent"] | components["schemas"]["LinkPrintedEvent"] | components["schemas"]["KeyUsedFromNewNetworkEvent"] | components["schemas"]["TicketCreatedEvent"] | components["schemas"]["RequestRejectedEvent"] | components["schemas"]["SignInStartedEvent"] | components["schemas"]["SignInEndedEvent"] | components["schemas"]["SignedOutEvent"] | components["schemas"]["InstallationStartedEvent"] | components["schemas"]["InstallationEndedEvent"] | components["schemas"]["WebhookCreatedEvent"] | components["schemas"]["WebhookDeletedEvent"] | components["schemas"]["GrantSetEvent"] | components["schemas"]["GrantRemovedEvent"] | components["schemas"]["SessionErasedEvent"] | components["schemas"]["SessionReadEvent"] | components["schemas"]["SessionExportedEvent"] | components["schemas"]["BroadcastSentEvent"] | components["schemas"]["PermissionDecidedEvent"] | components["schemas"]["PermissionToolCallEndedEvent"] | components["schemas"]["AgentRequestRefusedEvent"] | components["schemas"]["IsolationAppliedEvent"] | components["schemas"]["FleetMemberChangedEvent"] | components["schemas"]["SessionImportedEvent"] | components["schemas"]["AuditEventImportedEvent"] | components["schemas"]["AuditPrunedEvent"] | components["schemas"]["ResetEvent"] | components["schemas"]["ReadyEvent"] | components["schemas"]["PositionEvent"] | components["schemas"]["SessionSummaryEvent"] | components["schemas"]["SummariesResetEvent"] | components["schemas"]["SessionSharedEvent"] | components["schemas"]["SessionUnsharedEvent"] | components["schemas"]["ProblemEvent"] | components["schemas"]["ShutdownEvent"] | components["schemas"]["EndEvent"];
        /**
         * @description A state of a member of the fleet that began.
         * @enum {string}
         */
        KnownAuditedMemberState: "connected" | "reconnecting" | "disconnected" | "failed";
        /**
         * @description How a target got the message.
         * @enum {string}
         */
        KnownBroadcastDelivery: "written" | "sent" | "received" | "queued";
        /**
         * @description Why a target did not get the message.
         * @enum {string}
         */
        KnownBroadcastReason: "unknown" | "no_process" | "no_session" | "starting" | "ended" | "disconnected" | "unsupported" | "queue_full" | "timeout" | "rejected";
        /**
         * @description The kind of a target.
         * @enum {string}
         */
        KnownBroadcastTargetKind: "agent" | "session" | "member";
        /**
         * @description The purpose of a broadcast, for its receivers. The gateway treats all of them alike.
         * @enum {string}
         */
        KnownBroadcastType: "announcement" | "health_check" | "context_update" | "pattern_learned" | "custom";
        /**
         * @description Why the gateway asked the agent to end a turn, or ended a turn that was not sent.
         * @enum {string}
         */
        KnownCancelCause: "person" | "disconnect" | "silence" | "tool_call_silence" | "deadline" | "budget" | "drain";
        /** @description A content block of ACP. `type` selects the schema. Agents with a later version of ACP may send other types. */
        KnownContentBlock: components["schemas"]["TextBlock"] | components["schemas"]["ImageBlock"] | components["schemas"]["AudioBlock"] | components["schemas"]["ResourceLinkBlock"] | components["schemas"]["ResourceBlock"];
        /**
         * @description Whether the agent still has the earlier conversation.
         * @enum {string}
         */
        KnownContext: "kept" | "lost";
        /**
         * @description The reason why a session lost its process.
         * @enum {string}
         */
        KnownDetachedReason: "idle" | "exited" | "closed" | "drain" | "reclaimed";
        /**
         * @description The reason why a stream is complete.
         * @enum {string}
         */
        KnownEndReason: "turn_ended" | "caught_up" | "session_deleted";
        /**
         * @description The form in which a session was exported.
         * @enum {string}
         */
        KnownExportForm: "json" | "markdown" | "file";
        /**
         * @description The kind of a change.
         * @enum {string}
         */
        KnownFileChangeKind: "added" | "modified" | "deleted";
        /**
         * @description The type of an entry in a list of files.
         * @enum {string}
         */
        KnownFileKind: "file" | "folder" | "link" | "other";
        /**
         * @description The state of the connection of a member.
         * @enum {string}
         */
        KnownFleetMemberState: "connected" | "reconnecting" | "disconnected";
        /** @enum {string} */
        KnownInstallationSource: "registry" | "path";
        /** @enum {string} */
        KnownInstallationStatus: "running" | "succeeded" | "failed";
        /**
         * @description The level that the operator requests for an agent.
         * @enum {string}
         */
        KnownIsolation: "off" | "private" | "workspace" | "strict";
        /**
         * @description The origin of a key.
         * @enum {string}
         */
        KnownKeyKind: "link" | "local" | "named" | "admin";
        /**
         * @description The reason why the agent lost the context of the session.
         * @enum {string}
         */
        KnownLostReason: "not_found" | "unsupported" | "rejected_session" | "not_restored" | "requested" | "imported";
        /**
         * @description The means that applies the level. Without `namespaces`, sandboxes of agents that mount file systems fail at the
         *     levels `private` and `workspace`.
         * @enum {string}
         */
        KnownMechanism: "namespaces" | "landlock" | "partial" | "command" | "none";
        /**
         * @description The action for a permission request that is not answered in time.
         * @enum {string}
         */
        KnownOnTimeout: "reject" | "wait";
        /**
         * @description A problem code for programs. Clients must expect unknown codes.
         * @enum {string}
         */
        KnownProblemCode: "agent_auth_required" | "agent_disconnected" | "agent_error" | "agent_exited" | "agent_start_failed" | "agent_timeout" | "agent_unsupported" | "body_memory_full" | "budget_exceeded" | "cancel_timeout" | "content_unsupported" | "crash_loop" | "deadline_exceeded" | "draining" | "forbidden" | "history_diverged" | "idempotency_in_flight" | "idempotency_mismatch" | "installation_running" | "internal" | "interrupted" | "invalid" | "key_revoked" | "last_owner" | "malformed" | "member_unavailable" | "method_not_allowed" | "misdirected_request" | "not_acceptable" | "not_found" | "pool_full" | "precondition_failed" | "prompt_expired" | "prompt_not_queued" | "queue_full" | "range_not_satisfiable" | "rate_limited" | "registry_unavailable" | "request_resolved" | "session_closed" | "storage_full" | "too_large" | "turn_running" | "unauthorized" | "unsupported_media_type";
        /**
         * @description The current activity of an agent's process.
         * @enum {string}
         */
        KnownProcessState: "starting" | "idle" | "busy" | "releasing" | "stopping";
        /**
         * @description The state of a turn.
         * @enum {string}
         */
        KnownPromptStatus: "queued" | "running" | "completed" | "failed";
        /**
         * @description The reason why a request of an agent was refused.
         * @enum {string}
         */
        KnownRefuseReason: "off" | "outside_folders";
        /**
         * @description The reason why a request was rejected.
         * @enum {string}
         */
        KnownRejectReason: "misdirected_request" | "origin_forbidden" | "missing_key" | "invalid_key" | "invalid_ticket" | "too_many_invalid_keys" | "forbidden";
        /**
         * @description The reason why a stream cannot deliver every event after the cursor.
         * @enum {string}
         */
        KnownResetReason: "pruned" | "unknown_cursor" | "new_epoch" | "damaged";
        /**
         * @description The way in which a request was resolved.
         * @enum {string}
         */
        KnownResolution: "answered" | "policy" | "cancelled" | "withdrawn" | "expired" | "disconnected";
        /**
         * @description The author of a message.
         * @enum {string}
         */
        KnownRole: "user" | "agent" | "thought";
        /**
         * @description An access right of a key.
         * @enum {string}
         */
        KnownScope: "read" | "prompt" | "approve" | "files" | "mcp" | "fleet" | "metrics" | "actAs" | "admin";
        /** @description An event. `type` selects the schema. Clients must ignore unknown types. */
        KnownSessionEvent: components["schemas"]["SessionCreatedEvent"] | components["schemas"]["SessionAttachedEvent"] | components["schemas"]["SessionDetachedEvent"] | components["schemas"]["SessionChangedEvent"] | components["schemas"]["SessionPrivilegedModeEvent"] | components["schemas"]["SessionClosedEvent"] | components["schemas"]["SessionDeletedEvent"] | components["schemas"]["PromptQueuedEvent"] | components["schemas"]["PromptChangedEvent"] | components["schemas"]["PromptStartedEvent"] | components["schemas"]["SessionUpdateEvent"] | components["schemas"]["PromptCompletedEvent"] | components["schemas"]["PromptFailedEvent"] | components["schemas"]["RequestCreatedEvent"] | components["schemas"]["RequestResolvedEvent"] | components["schemas"]["ElicitationCompletedEvent"] | components["schemas"]["TerminalCreatedEvent"] | components["schemas"]["TerminalOutputEvent"] | components["schemas"]["TerminalExitedEvent"] | components["schemas"]["AgentExitedEvent"] | components["schemas"]["AgentInvalidOutputEvent"] | components["schemas"]["ExtensionEvent"] | components["schemas"]["ResetEvent"] | components["schemas"]["ReadyEvent"] | components["schemas"]["PositionEvent"] | components["schemas"]["SessionSummaryEvent"] | components["schemas"]["SummariesResetEvent"] | components["schemas"]["SessionSharedEvent"] | components["schemas"]["SessionUnsharedEvent"] | components["schemas"]["ProblemEvent"] | components["schemas"]["ShutdownEvent"] | components["schemas"]["EndEvent"];
        /**
         * @description The current activity of a session.
         * @enum {string}
         */
        KnownSessionState: "idle" | "running" | "waiting" | "closed";
        /**
         * @description The reason why an unfinished tool call counts as ended.
         * @enum {string}
         */
        KnownSettled: "cancelled" | "unfinished";
        /**
         * @description The order of tasks. A task precedes later tasks of the same priority. A low task precedes normal tasks that are 10
         *     minutes younger, and a normal task precedes high tasks that are an hour younger.
         * @enum {string}
         */
        KnownTaskPriority: "low" | "normal" | "high" | "critical";
        /**
         * @description The state of a task.
         * @enum {string}
         */
        KnownTaskStatus: "queued" | "running" | "completed" | "failed" | "cancelled" | "interrupted";
        /**
         * @description The source of a session's title.
         * @enum {string}
         */
        KnownTitleBy: "client" | "agent" | "prompt";
        /**
         * @description The end of a tool call that a permission allowed.
         * @enum {string}
         */
        KnownToolCallOutcome: "completed" | "failed" | "unknown";
        /**
         * @description The provider of an agent's file or terminal methods, the most restricted first.
         * @enum {string}
         */
        KnownToolProvider: "off" | "client" | "gateway";
        /** @description An item of a turn. `type` selects the schema. Clients must ignore unknown types. */
        KnownTurnItem: components["schemas"]["TurnMessage"] | components["schemas"]["TurnToolCall"] | components["schemas"]["TurnTerminal"] | components["schemas"]["TurnRequest"] | components["schemas"]["TurnNotice"] | components["schemas"]["TurnCompaction"] | components["schemas"]["TurnSubagent"] | components["schemas"]["TurnSessionMessage"] | components["schemas"]["ContextLost"] | components["schemas"]["TurnOther"];
        /**
         * @description The outcome of a turn that has ended.
         * @enum {string}
         */
        KnownTurnOutcome: "completed" | "cancelled" | "failed";
        /** @enum {string} */
        KnownWebhookDeliveryState: "pending" | "delivered" | "failed";
        /** @description A failed start, or the end of a process. */
        LastAgentFailure: {
            code: components["schemas"]["ProblemCode"];
            detail: string;
            /**
             * Format: int32
             * @description Null if the process did not exit with a code.
             */
            exitCode: number | null;
            /** @description At most the last 4 KiB that the process wrote to stderr. Its secrets are masked. */
            stderrTail: string;
            /** Format: date-time */
            time: string;
        };
        /** @description The gateway printed the link with this key. */
        LinkPrintedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            keyId: string;
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "link.printed";
        };
        /** @description A record of the log. */
        LogRecord: {
            /** @description The other fields of the record. */
            fields: {
                [key: string]: unknown;
            };
            /** @description `WARN` or `ERROR`. */
            level: string;
            message: string;
            /** @description The part of the gateway. */
            target: string;
            /** Format: date-time */
            time: string;
        };
        /** @description The reason why the agent lost the context of the session. */
        LostReason: components["schemas"]["KnownLostReason"];
        /** @description The name of a configured server, or an ACP `McpServer`. An object requires the scope `mcp`; without it, the response is 403. */
        McpServer: string | {
            [key: string]: unknown;
        };
        /**
         * @description The means that applies the level. Without `namespaces`, sandboxes of agents that mount file systems fail at the
         *     levels `private` and `workspace`.
         */
        Mechanism: components["schemas"]["KnownMechanism"];
        /** @description A call of a method of a member. */
        MemberCall: {
            method: string;
            /** @description The default is an empty object. */
            params?: {
                [key: string]: unknown;
            };
            /**
             * Format: int64
             * @description The time for the result, in seconds. After it, the call fails with 504. The default is 30.
             * @default 30
             */
            timeoutSeconds: number;
        };
        /** @description A mode of the agent, or a value of one of its options that selects a mode. */
        ModeSelection: {
            /** @description The id of the option. */
            configId?: string;
            /** @description The id of the mode. */
            modeId?: string;
            /** @description The value of the option. Absent for an option that is switched on. */
            value?: string;
        };
        /** @description The access that a grant gives. */
        NewGrant: {
            access: components["schemas"]["KnownAccess"];
        };
        /** @description A request to add an agent to the configuration. */
        NewInstallation: {
            /** @description The id in the registry, or the name of an agent on PATH. */
            agent: components["schemas"]["AgentName"];
            from: components["schemas"]["KnownInstallationSource"];
            /** @description The version that the registry must have. Required for the registry. */
            version?: string | null;
        };
        /** @description The action for a permission request that is not answered in time. */
        OnTimeout: components["schemas"]["KnownOnTimeout"];
        OptionValue: string | boolean;
        /** @description A request that waits for an answer. */
        PendingRequest: {
            /** @description The ACP client that alone can answer: the client of `/acp` that started the turn. Absent if every client can answer. */
            acpClient?: string;
            createdAt: components["schemas"]["Timestamp"];
            deadline: components["schemas"]["Timestamp"] | null;
            /** @description The ACP method, such as `session/request_permission`. */
            method: string;
            /** @description Raw ACP, with the gateway's `sessionId`. */
            params: components["schemas"]["RequestParams"];
            promptId: components["schemas"]["PromptId"] | null;
            requestId: components["schemas"]["RequestId"];
            /** @description The agent's id of the child session that sent the request. Absent for the session itself. */
            subagent?: string;
        };
        /** @description The agent's requests that wait for an answer. */
        PendingRequests: {
            /** @description Always null: all pending requests fit on one page. */
            nextCursor: string | null;
            requests: components["schemas"]["PendingRequest"][];
        };
        /** @description The limits of the user. All keys of the user count together. */
        PerKeyLimits: {
            /**
             * Format: int32
             * @description The maximum number of members of the fleet.
             */
            maxFleetMembers: number;
            /**
             * Format: int32
             * @description The maximum number of sessions that have a process or wait for one.
             */
            maxLiveSessions: number;
            /**
             * Format: int32
             * @description The maximum number of prompts in a minute.
             */
            maxPromptsPerMinute: number;
            /**
             * Format: int32
             * @description The maximum number of prompts and calls that wait for a process of one agent.
             */
            maxQueuedPrompts: number;
            /**
             * Format: int32
             * @description The maximum number of bytes of tasks that wait for a process.
             */
            maxQueuedTaskBytes: number;
            /**
             * Format: int32
             * @description The maximum number of requests in a minute.
             */
            maxRequestsPerMinute: number;
            /**
             * Format: int32
             * @description The maximum number of concurrent streams and held responses.
             */
            maxStreams: number;
        };
        /** @description The limits of each session. */
        PerSessionLimits: {
            /** @description The maximum number of agent requests that wait for an answer. */
            maxPendingRequests: number;
            /** @description The maximum number of prompts that wait in the session. */
            maxQueuedPrompts: number;
        };
        /** @description The selected option, or a cancellation. */
        PermissionAnswer: components["schemas"]["PermissionChoice"] | components["schemas"]["PermissionCancellation"];
        PermissionCancellation: {
            /** @enum {boolean} */
            cancelled: true;
        };
        PermissionChoice: {
            optionId: string;
        };
        /** @description A permission request of an agent was resolved. */
        PermissionDecidedEvent: {
            actor: components["schemas"]["AuditActor"];
            agent: components["schemas"]["AgentName"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /**
             * @description The kind of the selected option: `allow_once`, `allow_always`, `reject_once`, `reject_always`, or `other`.
             *     Absent if none was selected.
             */
            optionKind?: string;
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            promptId?: components["schemas"]["PromptId"];
            requestId: components["schemas"]["RequestId"];
            resolution: components["schemas"]["Resolution"];
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            time: components["schemas"]["Timestamp"];
            /**
             * @description The id of the tool call, as in the events of the session. An id that is longer than 128 bytes or has other
             *     characters than visible ASCII is `sha256:` and its SHA-256 in hex.
             */
            toolCallId?: string;
            /** @description The ACP kind of the tool, or `other`. Absent if the agent sent none. */
            toolKind?: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "permission.decided";
        };
        /** @description An option of a permission request. Answer with its `optionId`. */
        PermissionOption: {
            /** @description `allow_once`, `allow_always`, `reject_once`, `reject_always`. */
            kind?: string;
            name?: string;
            optionId: string;
        } & {
            [key: string]: unknown;
        };
        /** @description The policy for permission requests. */
        PermissionPolicy: {
            /** @description Kinds of tool calls that the gateway allows without a question. */
            allow?: string[] | null;
            onTimeout?: components["schemas"]["OnTimeout"] | null;
            /**
             * Format: int64
             * @description The time in seconds that a request waits for an answer.
             */
            timeoutSeconds?: number | null;
        };
        /** @description The policy for permission requests. */
        PermissionPolicyInput: {
            /** @description Kinds of tool calls that the gateway allows without a question. */
            allow?: string[] | null;
            onTimeout?: components["schemas"]["KnownOnTimeout"] | null;
            /**
             * Format: int64
             * @description The time in seconds that a request waits for an answer.
             */
            timeoutSeconds?: number | null;
        };
        /** @description A tool call ended that a permission allowed, or its turn or process did. The log has one event for each such decision. */
        PermissionToolCallEndedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            outcome: components["schemas"]["ToolCallOutcome"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            promptId?: components["schemas"]["PromptId"];
            /** @description The permission request. */
            requestId: components["schemas"]["RequestId"];
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            time: components["schemas"]["Timestamp"];
            /** @description As in `permission.decided`. */
            toolCallId: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "permission.tool_call_ended";
        };
        /** @description Statistics of the agent's processes, summed over all pools. */
        PoolFigures: {
            /** @description The number of idle processes: ready for any session, or reserved for the user whose sessions used them last. */
            idle: number;
            /**
             * Format: int64
             * @description The time in seconds that a process stays with an idle session.
             */
            idleTimeoutSeconds: number;
            /**
             * @description True if the agent keeps a session locked after `session/close`. The gateway detects this at run time.
             *     It then stops a process of this agent instead of reusing it for another session.
             */
            keepsSessionsLocked: boolean;
            /** @description The number of processes that hold a session. */
            leased: number;
            /** @description The maximum number of processes. */
            maxSize: number;
            /**
             * @description The target number of idle processes. It is 0 while the agent requires a sign-in, and after a long time
             *     without use.
             */
            minIdle: number;
            /**
             * Format: int64
             * @description The same time for an agent that can neither load nor resume a session.
             */
            noLoadIdleTimeoutSeconds: number;
            /**
             * Format: int64
             * @description The time in seconds that a process of such an agent must be idle before a full pool reclaims it.
             */
            noLoadReclaimTimeoutSeconds: number;
            /** @description The number of processes that run or start. */
            processes: number;
            /** @description The number of processes that start. */
            starting: number;
            /** @description The number of turns and sessions that wait for a process. */
            waiting: number;
        };
        /** @description A position in the whole log, for streams over many sessions. */
        Position: string;
        /**
         * @description Advances the client's cursor past events that its filters exclude. The `id` of the frame is the new
         *     cursor.
         */
        PositionEvent: {
            id?: string;
            sessionId?: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "position";
        };
        /** @description The user to whom the key gives access. */
        PrincipalInfo: {
            /** @description The name of the user. Sessions belong to the user. */
            id: string;
            tenant: string;
        };
        /** @description A problem (RFC 9457) with additional members of the gateway. */
        Problem: {
            /** @description The complete JSON-RPC error of the agent. */
            acp?: components["schemas"]["RpcError"];
            /** @description The sign-in methods of the agent (`authMethods`). */
            authMethods?: unknown;
            /** @description The user that resolved the request. */
            by?: string;
            code: components["schemas"]["ProblemCode"];
            /** @description An explanation of this occurrence. */
            detail: string;
            /** @description The invalid members of the body or the query. */
            errors?: components["schemas"]["FieldError"][];
            /**
             * Format: int32
             * @description The exit code of an ended process; null if a signal ended it.
             */
            exitCode?: number | null;
            /**
             * @description The path of the request and, after `#`, its `X-Request-Id`: a URI reference. The log has the details of `internal`
             *     under it. Absent in events.
             */
            instance?: string;
            /** @description The running turn, or the turn that the problem refers to. */
            promptId?: components["schemas"]["PromptId"];
            /** @description The request that the problem refers to. */
            requestId?: components["schemas"]["RequestId"];
            /** @description The scope that the key lacks. */
            requiredScope?: components["schemas"]["Scope"];
            /** @description The earlier resolution of the request. `by` is the user that resolved it. */
            resolution?: components["schemas"]["Resolution"];
            /**
             * Format: int64
             * @description The time in seconds after which a retry may succeed.
             */
            retryAfterSeconds?: number;
            /** @description True if the same request may succeed later without changes. */
            retryable: boolean;
            /**
             * Format: int64
             * @description The current revision of the session.
             */
            revision?: number;
            /** @description The signal that ended a process; null if no signal ended it. */
            signal?: string | null;
            /**
             * Format: int32
             * @description The HTTP status of the code.
             */
            status: number;
            /** @description The last output of an ended process to stderr. */
            stderrTail?: string;
            /** @description A short title, the same for every occurrence of the code. */
            title: string;
            /**
             * Format: uri-reference
             * @description A reference to the documentation of the code.
             * @example /docs/problems#not_found
             */
            type: string;
        };
        /** @description A problem code for programs. Clients must expect unknown codes. */
        ProblemCode: components["schemas"]["KnownProblemCode"];
        /** @description The gateway ends the stream because of a problem. The client may reconnect. */
        ProblemEvent: {
            id?: string;
            problem: components["schemas"]["Problem"];
            sessionId?: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "problem";
        };
        /** @description A process of an agent, or a connection to a remote agent. */
        ProcessFigures: {
            agent: components["schemas"]["AgentName"];
            /**
             * Format: int64
             * @description The resident memory of the process and its descendants. Null if `pid` is null.
             */
            memoryBytes: number | null;
            /**
             * Format: int32
             * @description Null while the process starts, and if it is not a child process of the gateway.
             */
            pid: number | null;
            sessionId: components["schemas"]["SessionId"] | null;
            /**
             * Format: date-time
             * @description When the gateway started the process, or continued with it.
             */
            startedAt: string;
            state: components["schemas"]["ProcessState"];
        };
        /** @description The current activity of an agent's process. */
        ProcessState: components["schemas"]["KnownProcessState"];
        /** @description A turn. The object is the exact state at its `lastEventId`. */
        Prompt: {
            /** @description The user that sent the prompt. */
            by: string;
            /** @description Why the gateway cancelled the turn. Absent if it did not. */
            cancelCause?: components["schemas"]["CancelCause"];
            createdAt: components["schemas"]["Timestamp"];
            endedAt: components["schemas"]["Timestamp"] | null;
            error: components["schemas"]["Problem"] | null;
            /** @description The cursor for `after` on the session's events. The stream then continues after this state. */
            lastEventId: components["schemas"]["EventId"];
            promptId: components["schemas"]["PromptId"];
            sessionId: components["schemas"]["SessionId"];
            status: components["schemas"]["PromptStatus"];
            /** @description The agent's stop reason, a value of ACP such as `end_turn`. */
            stopReason: string | null;
            /** @description The agent's messages in this turn, joined. At most 8 MiB. */
            text: string;
            /** @description True if `text` omits a part of the agent's messages. The events contain all messages. */
            truncated: boolean;
            /** @description The token usage that the agent reported, raw ACP. */
            usage: {
                [key: string]: unknown;
            } | null;
        };
        /** @description A client changed a queued prompt: its content, its place in the queue, or both. */
        PromptChangedEvent: {
            before?: components["schemas"]["PromptId"] | null;
            /** @description The user that changed the prompt. */
            by: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The new content blocks. Absent if they stay the same. */
            prompt?: {
                [key: string]: unknown;
            }[];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "prompt.changed";
        };
        /** @description The agent ended the turn. */
        PromptCompletedEvent: {
            /** @description The request of the ACP client that sent the prompt. Absent for a prompt over another protocol. */
            acpRequest?: components["schemas"]["AcpRequest"];
            /** @description Why the gateway cancelled the turn. Absent for a turn that the agent ended itself. */
            cancelCause?: components["schemas"]["CancelCause"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /** @description The agent's answer, raw ACP. */
            result: unknown;
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The stop reason of ACP: `end_turn`, `cancelled`, ... */
            stopReason: string;
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "prompt.completed";
            /** @description The token usage of the turn, raw ACP. */
            usage?: {
                [key: string]: unknown;
            };
        };
        /** @description A text, or an array of ACP content blocks. */
        PromptContent: string | components["schemas"]["KnownContentBlock"][];
        /** @description The turn failed. */
        PromptFailedEvent: {
            /** @description The request of the ACP client that sent the prompt. Absent for a prompt over another protocol. */
            acpRequest?: components["schemas"]["AcpRequest"];
            /** @description Why the gateway cancelled the turn before it failed. Absent for a turn that was not cancelled. */
            cancelCause?: components["schemas"]["CancelCause"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            problem: components["schemas"]["Problem"];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "prompt.failed";
        };
        /** @description The id of a turn in its session. */
        PromptId: string;
        /** @description A page of turns, the newest first. */
        PromptList: {
            /** @description The cursor of the next page; null on the last page. */
            nextCursor: string | null;
            prompts: components["schemas"]["Prompt"][];
        };
        /** @description A change of a queued prompt. An absent member stays unchanged. */
        PromptPatch: {
            /** @description Files of the session to attach to the new content. At most 64. Requires `prompt`. */
            attachments?: components["schemas"]["Attachment"][];
            before?: components["schemas"]["PromptId"] | null;
            /** @description The new content. */
            prompt?: components["schemas"]["PromptContent"];
        };
        /** @description A prompt waits for the end of the running turn. */
        PromptQueuedEvent: {
            /** @description The request of the ACP client that sent the prompt. Absent for a prompt over another protocol. */
            acpRequest?: components["schemas"]["AcpRequest"];
            /**
             * Format: uuid
             * @description The broadcast that sent the prompt. Absent for another prompt.
             */
            broadcastId?: string;
            /** @description The user that sent the prompt. */
            by: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            idempotencyKey?: string;
            /** @description The position in the queue; 1 is the next prompt. */
            position: number;
            /** @description The content blocks as the agent will receive them. */
            prompt: {
                [key: string]: unknown;
            }[];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "prompt.queued";
        };
        /** @description A turn started. */
        PromptStartedEvent: {
            /** @description The request of the ACP client that sent the prompt. Absent for a prompt over another protocol. */
            acpRequest?: components["schemas"]["AcpRequest"];
            /**
             * Format: uuid
             * @description The broadcast that sent the prompt. Absent for another prompt.
             */
            broadcastId?: string;
            /** @description The user that sent the prompt. */
            by: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            idempotencyKey?: string;
            /** @description The content blocks as the agent received them. Absent after `prompt.queued`. */
            prompt?: {
                [key: string]: unknown;
            }[];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "prompt.started";
        };
        /** @description The state of a turn. */
        PromptStatus: components["schemas"]["KnownPromptStatus"];
        /** @description The replay is complete. The following events are live. */
        ReadyEvent: {
            id?: string;
            /** @description The cursor at the end of the replay. */
            lastEventId: string;
            sessionId?: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "ready";
        };
        /** @description The reason why a request of an agent was refused. */
        RefuseReason: components["schemas"]["KnownRefuseReason"];
        /** @description The registry of installations. */
        RegistryInfo: {
            /** @description Whether `registry.source` names it. Otherwise it is the registry of the ACP project. */
            configured: boolean;
            /** @description Whether an agent receives those of its `keyVariables` that the gateway's environment has. */
            inherits: boolean;
            /** @description The host of the registry, or its file. */
            source: string;
        };
        /** @description The reason why a request was rejected. */
        RejectReason: components["schemas"]["KnownRejectReason"];
        /** @description The members that an operator has removed. */
        RemovedMembers: {
            /** @description The names of the members. */
            members: components["schemas"]["AgentName"][];
        };
        /** @description A result, which is passed to the agent unchanged, or a JSON-RPC error. */
        RequestAnswer: components["schemas"]["ResultAnswer"] | components["schemas"]["ErrorAnswer"];
        /** @description The agent sent a request that clients can answer. */
        RequestCreatedEvent: {
            /** @description The ACP client that alone can answer: the client of `/acp` that started the turn. Absent if every client can answer. */
            acpClient?: string;
            /**
             * @description The time at which the gateway answers the request if no client has answered. Absent if it has no
             *     deadline.
             */
            deadline?: components["schemas"]["Timestamp"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            method: string;
            /** @description Raw ACP, with the gateway's `sessionId`. */
            params: components["schemas"]["RequestParams"];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            requestId: components["schemas"]["RequestId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The agent's id of the child session that sent the request. Absent for the session itself. */
            subagent?: string;
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "request.created";
        };
        /** @description The id of an agent's request in its session. */
        RequestId: string;
        /** @description The params of a request as the agent sent them, but with the gateway's `sessionId`. `method` determines the members. */
        RequestParams: {
            /** @description Only in `elicitation/create`: the question to the user. */
            message?: string;
            /** @description Only in `elicitation/create`: `form` or `url`. */
            mode?: string;
            /** @description Only in `session/request_permission`: the options that a client can select. */
            options?: components["schemas"]["PermissionOption"][];
            /** @description Only in `elicitation/create` with mode `form`: the JSON schema of the answer. */
            requestedSchema?: {
                [key: string]: unknown;
            };
            sessionId?: string;
            /** @description Only in `session/request_permission`: the tool call that waits for permission. */
            toolCall?: {
                [key: string]: unknown;
            };
        } & {
            [key: string]: unknown;
        };
        /** @description Requests were rejected: the client has no valid key, or no right, or a wrong `Host` or `Origin`. */
        RequestRejectedEvent: {
            actor: components["schemas"]["AuditActor"];
            /**
             * Format: int64
             * @description The number of requests since the last event with this actor and reason.
             */
            count: number;
            firstTime: components["schemas"]["Timestamp"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            lastTime: components["schemas"]["Timestamp"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            reason: components["schemas"]["RejectReason"];
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "request.rejected";
        };
        /** @description A request of the agent was answered or ended in another way. */
        RequestResolvedEvent: {
            /** @description The ACP client that alone could answer. Absent if every client could answer. */
            acpClient?: string;
            /** @description The user that answered. Absent unless a client answered. */
            by?: string;
            error?: {
                [key: string]: unknown;
            };
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            method: string;
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            requestId: components["schemas"]["RequestId"];
            resolution: components["schemas"]["Resolution"];
            result?: unknown;
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /** @description The tool call of a permission request, if the request names one. */
            toolCallId?: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "request.resolved";
        };
        /**
         * @description The conversation that the agent continues after an attach.
         * @enum {string}
         */
        RequestedContext: "kept" | "new";
        /**
         * @description Discard the events that you hold. The stream continues with the earliest event of the log, or with the
         *     first event after the damage.
         *
         *     On `/v1/events` without a selection of sessions, `session` is absent. With a `sessionId`, the reset
         *     applies to that session only.
         */
        ResetEvent: {
            id?: string;
            reason: components["schemas"]["ResetReason"];
            session?: components["schemas"]["Session"];
            sessionId?: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "reset";
        };
        /** @description The reason why a stream cannot deliver every event after the cursor. */
        ResetReason: components["schemas"]["KnownResetReason"];
        /** @description The way in which a request was resolved. */
        Resolution: components["schemas"]["KnownResolution"];
        /** @description A file or another resource, with its content. */
        ResourceBlock: {
            resource: components["schemas"]["EmbeddedResource"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "resource";
        } & {
            [key: string]: unknown;
        };
        /** @description A link to a file or another resource. */
        ResourceLinkBlock: {
            description?: string | null;
            mimeType?: string | null;
            name?: string;
            title?: string | null;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "resource_link";
            uri: string;
        } & {
            [key: string]: unknown;
        };
        ResultAnswer: {
            result: unknown;
        };
        /** @description The keys of `[retention]` in the configuration. */
        RetentionLimits: {
            /** Format: int64 */
            auditMaxAgeSeconds: number;
            /** Format: int64 */
            maxAgeSeconds: number;
            /** Format: int64 */
            maxSessionBytes: number;
            /** Format: int64 */
            maxTotalBytes: number;
            /** Format: int64 */
            minFreeDiskBytes: number;
            /** Format: int64 */
            minFreeDiskPercent: number;
        };
        /** @description The author of a message. */
        Role: components["schemas"]["KnownRole"];
        /** @description A call of a method that the agent's entry allows (`rpc`). */
        RpcCall: {
            /** @description The name of the method. */
            method: string;
            /** @description If true, the gateway sends a notification, and the agent does not answer. */
            notify?: boolean;
            /** @description The params, an object that is sent unchanged. The default is `{}`. */
            params?: {
                [key: string]: unknown;
            } | null;
        };
        /** @description A JSON-RPC error of the agent. */
        RpcError: {
            /** Format: int64 */
            code: number;
            data?: unknown;
            message: string;
        };
        /** @description The result of a call. */
        RpcResult: {
            /** @description The agent's result, raw. */
            result: unknown;
        };
        /** @description An access right of a key. */
        Scope: components["schemas"]["KnownScope"];
        /** @description The selected targets, at most 1,000. A target that occurs twice gets the message once. */
        SelectedTargets: {
            /** @description Agents: all of their processes, or the sessions of these processes. */
            agents?: components["schemas"]["AgentName"][];
            /** @description Members of the fleet: all of their processes, or the sessions of these processes. */
            members?: components["schemas"]["AgentName"][];
            /** @description Sessions: their processes, or their queues. */
            sessions?: components["schemas"]["SessionId"][];
        };
        /** @description A session. The object is the exact state at its `lastEventId`. */
        Session: {
            /** @description The access of the user of this request to the session. Absent in events. */
            access?: components["schemas"]["Access"];
            agent: components["schemas"]["AgentName"];
            /** @description True if a process of the agent holds this session. */
            attached: boolean;
            /** @description The agent's slash commands, raw ACP. */
            availableCommands: {
                [key: string]: unknown;
            }[] | null;
            /** @description The agent's options, raw ACP. */
            configOptions: {
                [key: string]: unknown;
            }[] | null;
            createdAt: components["schemas"]["Timestamp"];
            /** @description The working directory of the agent, an absolute path. */
            cwd: string;
            /**
             * @description The modes and the values of options that the agent offers and that no client can select (`modes.deny` of the
             *     agent's entry). Absent if there are none.
             */
            deniedModes?: components["schemas"]["ModeSelection"][];
            /** @description The id that the session had at another gateway before an operator imported it. Absent for other sessions. */
            importedFrom?: components["schemas"]["SessionId"];
            isolation: components["schemas"]["AppliedIsolation"] | null;
            /**
             * @description The time of the last change of a turn or of a request: a prompt was accepted, started or ended, or a request
             *     was opened or resolved. The time of creation before the first one.
             */
            lastActivityAt: components["schemas"]["Timestamp"];
            /**
             * @description The cursor for `after` on the session's events. The stream then continues after this state without a
             *     gap.
             */
            lastEventId: components["schemas"]["EventId"];
            lastOutcome: components["schemas"]["TurnOutcome"] | null;
            /** @description Arbitrary data of clients. */
            metadata: {
                [key: string]: unknown;
            };
            /** @description The agent's modes, raw ACP. */
            modes: {
                [key: string]: unknown;
            } | null;
            /** @description The name of the user that owns the session. Absent in events. */
            owner?: string;
            /** @description The agent's plan, raw ACP. */
            plan: unknown;
            /** @description The restrictions that a client set for the session. */
            policy: components["schemas"]["SessionPolicy"];
            /** @description The agent's `promptCapabilities` from `initialize`: the content types that it supports in prompts. */
            promptCapabilities: {
                [key: string]: unknown;
            } | null;
            promptId: components["schemas"]["PromptId"] | null;
            /** @description The queued turns, oldest first. */
            queued: components["schemas"]["PromptId"][];
            /** @description The requests of the agent that wait for an answer. */
            requests: components["schemas"]["PendingRequest"][];
            /**
             * Format: int64
             * @description The number of changes of title, metadata, mode and options. `If-Match: "r<revision>"` makes a change or a delete
             *     conditional on it.
             */
            revision: number;
            sessionId: components["schemas"]["SessionId"];
            state: components["schemas"]["SessionState"];
            /**
             * @description The child sessions of the agent, raw ACP: the merged members of the `subagent_update`s of each child.
             *     Absent without child sessions.
             */
            subagents?: {
                [key: string]: unknown;
            }[];
            /**
             * Format: uuid
             * @description The task that runs in the session. Absent for other sessions.
             */
            taskId?: string;
            /**
             * @description The title from a client, else from the agent, else the beginning of the first prompt; null before the first
             *     prompt.
             */
            title: string | null;
            titleBy: components["schemas"]["TitleBy"] | null;
            updatedAt: components["schemas"]["Timestamp"];
            /** @description The last usage report of the agent (tokens and cost), raw ACP. */
            usage: {
                [key: string]: unknown;
            } | null;
        };
        /** @description A process of the agent holds the session now. */
        SessionAttachedEvent: {
            agentCapabilities: {
                [key: string]: unknown;
            };
            agentInfo: {
                [key: string]: unknown;
            } | null;
            by: components["schemas"]["AttachedBy"];
            context: components["schemas"]["Context"];
            /** @description The modes and the values of options in `result` that no client can select (`modes.deny` of the agent's entry). */
            deniedModes?: components["schemas"]["ModeSelection"][];
            /** @description The agent's error as one line of limited length, if there was one. Only with `context: "lost"`. */
            detail?: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            isolation: components["schemas"]["AppliedIsolation"] | null;
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The version of ACP that the gateway and the agent negotiated.
             */
            protocolVersion: number;
            /** @description The reason for the loss. Only with `context: "lost"`. */
            reason?: components["schemas"]["LostReason"];
            /** @description The agent's answer, raw ACP with the gateway's `sessionId`: `modes`, `configOptions`. */
            result: unknown;
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.attached";
        };
        /** @description The members that a client changed. */
        SessionChangedEvent: {
            /** @description The user that made the change. */
            by: string;
            configOptions?: unknown;
            currentModeId?: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The complete metadata after the change. */
            metadata?: {
                [key: string]: unknown;
            };
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            title?: string | null;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.changed";
        };
        /** @description A client closed the session. */
        SessionClosedEvent: {
            by: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.closed";
        };
        /** @description The configuration options of a session. */
        SessionConfigOptions: {
            /** @description Raw ACP. Null if the agent has no options. */
            configOptions: {
                [key: string]: unknown;
            }[] | null;
        };
        /** @description The first event of a session. */
        SessionCreatedEvent: {
            /** @description True if the agent had the session before the gateway adopted it. */
            adopted?: boolean;
            /** @description The session that this session was forked from. */
            forkedFrom?: components["schemas"]["SessionId"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            session: components["schemas"]["Session"];
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.created";
        };
        /** @description The last event of a session. An `end` frame follows. */
        SessionDeletedEvent: {
            by: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.deleted";
        };
        /** @description The session has no process any more. */
        SessionDetachedEvent: {
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            reason: components["schemas"]["DetachedReason"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.detached";
        };
        /** @description A session was deleted with its log: by a client, or by the gateway after `retention.max_age`. */
        SessionErasedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The user that owned the session, as `TENANT/NAME`. */
            owner: string;
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.erased";
        };
        /** @description An event. `type` selects the schema. Clients must ignore unknown types. */
        SessionEvent: components["schemas"]["KnownSessionEvent"];
        /**
         * @description A transcript was downloaded, or a command exported the session. For transcripts, the log has one event an hour for
         *     each key, address, session and form.
         */
        SessionExportedEvent: {
            actor: components["schemas"]["AuditActor"];
            form: components["schemas"]["ExportForm"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.exported";
        };
        /** @description The users that have access to a session. */
        SessionGrants: {
            /** @description The access of others, the latest grant last. The highest access of the grants for a user counts. */
            grants: components["schemas"]["Grant"][];
            /** @description The name of the user that owns the session. The owner needs no grant. */
            owner: string;
        };
        /**
         * Format: uuid
         * @description The id of a session: a UUID v7 in lower case.
         */
        SessionId: string;
        /** @description A command imported a session. */
        SessionImportedEvent: {
            actor: components["schemas"]["AuditActor"];
            /**
             * Format: int64
             * @description The number of `audit.imported` events that follow.
             */
            auditEvents: number;
            /**
             * @description The SHA-256 of the `event` members of those events, in their order and each with a line feed. `audit export` of the
             *     previous gateway prints the same lines.
             */
            auditHash: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The id of the session at the previous gateway. */
            importedFrom: components["schemas"]["SessionId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.imported";
        };
        /** @description A page of sessions, ordered by `lastActivityAt`, the newest first. */
        SessionList: {
            /** @description A cursor of `/v1/events`. The stream after it contains all changes that are newer than the list. */
            lastEventId: components["schemas"]["Position"];
            /** @description The cursor of the next page; null on the last page. */
            nextCursor: string | null;
            sessions: components["schemas"]["SessionSummary"][];
        };
        /** @description The modes of a session. */
        SessionModes: {
            /** @description Raw ACP: `currentModeId` and `availableModes`. Null if the agent has no modes. */
            modes: {
                [key: string]: unknown;
            } | null;
        };
        /**
         * @description A merge patch (RFC 7396). An absent member is unchanged, null clears it, and a value replaces it.
         *     `metadata` is merged member by member.
         */
        SessionPatch: {
            metadata?: {
                [key: string]: unknown;
            } | null;
            title?: string | null;
        };
        /** @description The permissions of a session's agent. A client can only restrict the values of the agent's entry. */
        SessionPolicy: {
            files?: components["schemas"]["ToolProvider"] | null;
            permissions?: components["schemas"]["PermissionPolicy"] | null;
            terminals?: components["schemas"]["ToolProvider"] | null;
        };
        /** @description The permissions of a session's agent. A client can only restrict the values of the agent's entry. */
        SessionPolicyInput: {
            files?: components["schemas"]["KnownToolProvider"] | null;
            permissions?: components["schemas"]["PermissionPolicyInput"] | null;
            terminals?: components["schemas"]["KnownToolProvider"] | null;
        };
        /** @description The agent entered a mode that no client can select (`modes.deny` of its entry). The gateway does not change the mode. */
        SessionPrivilegedModeEvent: {
            /** @description The id of the option that selects the mode. */
            configId?: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The id of the mode. */
            modeId?: string;
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The agent's id of the child session that entered the mode. Absent for the session itself. */
            subagent?: string;
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.privileged_mode";
            /** @description The value of the option. Absent for an option that is switched on. */
            value?: string;
        };
        /** @description A user that does not own the session opened it. The log has one event an hour for each key, address and session. */
        SessionReadEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The user that owns the session, as `TENANT/NAME`. */
            owner: string;
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.read";
        };
        /**
         * @description A session of another user was shared with the user of the stream, or the access to it changed. `sessionId` names the
         *     session.
         *
         *     Streams of `/v1/events` without `session` have it. The events of the session follow from here on; `GET
         *     /v1/sessions/{session}` has its state.
         */
        SessionSharedEvent: {
            access: components["schemas"]["Access"];
            id?: string;
            /** @description The cursor of the stream at this place. */
            lastEventId: string;
            sessionId?: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.shared";
        };
        /** @description The current activity of a session. */
        SessionState: components["schemas"]["KnownSessionState"];
        /** @description A session in a list. It omits the members that are folded from updates of the agent. */
        SessionSummary: {
            agent: components["schemas"]["AgentName"];
            attached: boolean;
            createdAt: components["schemas"]["Timestamp"];
            cwd: string;
            /**
             * @description The time of the last change of a turn or of a request: a prompt was accepted, started or ended, or a request
             *     was opened or resolved. The time of creation before the first one.
             */
            lastActivityAt: components["schemas"]["Timestamp"];
            lastEventId: components["schemas"]["EventId"];
            lastOutcome: components["schemas"]["TurnOutcome"] | null;
            metadata: {
                [key: string]: unknown;
            };
            /** @description The name of the user that owns the session. */
            owner: string;
            promptId: components["schemas"]["PromptId"] | null;
            queued: components["schemas"]["PromptId"][];
            sessionId: components["schemas"]["SessionId"];
            state: components["schemas"]["SessionState"];
            /**
             * Format: uuid
             * @description The task that runs in the session. Absent for other sessions.
             */
            taskId?: string;
            title: string | null;
            updatedAt: components["schemas"]["Timestamp"];
        };
        /**
         * @description The summary of a session changed. `sessionId` names the session.
         *
         *     Streams of `/v1/events` with `summaries=true` have it after `ready`, at most once for each session in 250 ms.
         */
        SessionSummaryEvent: {
            id?: string;
            session: components["schemas"]["SessionSummary"] | null;
            sessionId?: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.summary";
        };
        /**
         * @description The access to a session of another user was taken back, or the session was deleted. `sessionId` names the session.
         *
         *     Streams of `/v1/events` without `session` have it. No event of the session follows.
         */
        SessionUnsharedEvent: {
            id?: string;
            /** @description The cursor of the stream at this place. */
            lastEventId: string;
            sessionId?: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.unshared";
        };
        /** @description An update of the agent. */
        SessionUpdateEvent: {
            _meta?: unknown;
            /** @description True for a message of the user that only repeats the open prompt. The transcript and `/acp` omit it. */
            echo?: boolean;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description True if the update arrived after the end of its turn. */
            late?: boolean;
            /**
             * @description Other members that the agent sent beside `update`, raw. This version of the gateway does not know
             *     them.
             */
            more?: {
                [key: string]: unknown;
            };
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /** @description True for history that the agent replayed when the session was adopted or forked. */
            replayed?: boolean;
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description The agent's id of the child session that sent the update. Absent for the session itself. */
            subagent?: string;
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session.update";
            /** @description Raw ACP. */
            update: components["schemas"]["AcpUpdate"];
        };
        /** @description A change of a configuration option of a session. */
        SetConfigOption: {
            /** @description The id of a value, or a boolean for a switch. */
            value: components["schemas"]["OptionValue"];
        };
        /** @description A change of the mode of a session. */
        SetMode: {
            /** @description The id of one of the agent's modes. */
            modeId: string;
        };
        /** @description The reason why an unfinished tool call counts as ended. */
        Settled: components["schemas"]["KnownSettled"];
        /** @description The gateway is shutting down. Reconnect after `retryMs` milliseconds. */
        ShutdownEvent: {
            id?: string;
            /**
             * Format: int64
             * @description The time in milliseconds to wait before a reconnect.
             */
            retryMs: number;
            sessionId?: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "shutdown";
        };
        /** @description A sign-in to an agent. */
        SignIn: {
            /** @description Additional `_meta` for the agent. Only the keys in the agent's entry are allowed. */
            _meta?: {
                [key: string]: unknown;
            } | null;
            /**
             * @description An API key, for a method that accepts one. The gateway passes it to the agent in the agent's format.
             *     It keeps the key in memory for new processes of the agent and never stores it.
             */
            apiKey?: string;
            /** @description The id of one of `authMethods`. */
            methodId: string;
        };
        /** @description A sign-in to an agent ended. */
        SignInEndedEvent: {
            actor: components["schemas"]["AuditActor"];
            agent: components["schemas"]["AgentName"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            methodId?: string;
            outcome: components["schemas"]["AttemptOutcome"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "sign_in.ended";
        };
        /** @description A sign-in to an agent began. */
        SignInStartedEvent: {
            actor: components["schemas"]["AuditActor"];
            agent: components["schemas"]["AgentName"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The sign-in method of the agent. Absent for the terminal, which has a method since its offer. */
            methodId?: string;
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "sign_in.started";
        };
        /** @description The terminal of a sign-in. */
        SignInTerminal: {
            /** @description The path of the terminal's WebSocket. It accepts one connection. */
            url: string;
        };
        /** @description The gateway signed out of an agent. */
        SignedOutEvent: {
            actor: components["schemas"]["AuditActor"];
            agent: components["schemas"]["AgentName"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "sign_in.signed_out";
        };
        /** @description The log and its disk. */
        StoreFigures: {
            /** Format: int64 */
            diskFreeBytes: number;
            /** Format: int64 */
            diskTotalBytes: number;
            /** @description The data folder. */
            folder: string;
            /**
             * Format: int32
             * @description The version of the file format.
             */
            format: number;
            /** @description At most 20 sessions, the largest first. */
            largestSessions: components["schemas"]["StoredSession"][];
            /**
             * Format: int64
             * @description The size of all stored events.
             */
            logBytes: number;
            retention: components["schemas"]["RetentionLimits"];
            /**
             * Format: int64
             * @description The number of stored sessions.
             */
            sessions: number;
            /**
             * Format: int32
             * @description The random number of the store, which the ids of its new sessions carry.
             */
            shard: number;
        };
        /** @description The size of a session in the log. */
        StoredSession: {
            agent: components["schemas"]["AgentName"];
            /**
             * Format: int64
             * @description The size of its stored events.
             */
            bytes: number;
            /**
             * Format: int64
             * @description The number of its stored events.
             */
            events: number;
            /** Format: date-time */
            lastActivityAt: string;
            sessionId: components["schemas"]["SessionId"];
        };
        StreamPath: string;
        /** @description More sessions changed than the gateway keeps for a slow client. Read the list of sessions again. */
        SummariesResetEvent: {
            id?: string;
            sessionId?: components["schemas"]["SessionId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "summaries.reset";
        };
        /** @description A task. */
        Task: {
            agent: components["schemas"]["AgentName"];
            /**
             * @description Whether the agent has reported its usage of tokens, so that the gateway can enforce the budget. Null without a
             *     budget, and until the task runs.
             */
            budgetEnforced: boolean | null;
            /** @description The user that created the task. */
            by: string;
            /** @description The scheme and the host of the URL. The rest can have a secret. */
            callbackUrl: string | null;
            /** @description The tasks whose parent this task is, newest first. At most 1,000. Absent in lists and in deliveries of webhooks. */
            children?: string[];
            createdAt: components["schemas"]["Timestamp"];
            /** Format: date-time */
            deadline: string | null;
            description: string | null;
            /** Format: date-time */
            endedAt: string | null;
            metadata: {
                [key: string]: unknown;
            };
            /** Format: uuid */
            parentTask: string | null;
            permissions: components["schemas"]["PermissionPolicy"];
            priority: components["schemas"]["TaskPriority"];
            promptId: components["schemas"]["PromptId"] | null;
            result: components["schemas"]["TaskResult"] | null;
            sessionId: components["schemas"]["SessionId"] | null;
            /** Format: date-time */
            startedAt: string | null;
            status: components["schemas"]["TaskStatus"];
            /** Format: uuid */
            taskId: string;
            /** Format: int64 */
            tokenBudget: number | null;
        };
        /** @description The numbers of open tasks. */
        TaskFigures: {
            /** Format: int64 */
            queued: number;
            /** Format: int64 */
            running: number;
        };
        /** @description A page of tasks, newest first. */
        TaskList: {
            /** @description The cursor of the next page. Null on the last page. */
            nextCursor: string | null;
            tasks: components["schemas"]["Task"][];
        };
        /**
         * @description The order of tasks. A task precedes later tasks of the same priority. A low task precedes normal tasks that are 10
         *     minutes younger, and a normal task precedes high tasks that are an hour younger.
         */
        TaskPriority: components["schemas"]["KnownTaskPriority"];
        /** @description The result of a task. */
        TaskResult: {
            /** @description Why the gateway cancelled the turn of the task. Absent if it did not. */
            cancelCause?: components["schemas"]["CancelCause"];
            /**
             * Format: int64
             * @description The time from the start to the end of the task in milliseconds.
             */
            durationMs: number;
            /** @description The problem of a task that failed or was interrupted. */
            error?: components["schemas"]["Problem"];
            /** @description The `metadata` of the task. */
            metadata: {
                [key: string]: unknown;
            };
            /** @description The agent's messages, joined. At most 64 KiB; the transcript of the session has all messages. */
            output: string;
            /** @description The agent's stop reason, a value of ACP. */
            stopReason: string | null;
            /** @description True if the agent ended the turn with `end_turn`. */
            success: boolean;
            /**
             * Format: int64
             * @description The tokens that the agent reported. Null if it reports none.
             */
            tokensUsed: number | null;
            /** @description True if `output` omits a part of the messages. */
            truncated: boolean;
        };
        /** @description The state of a task. */
        TaskStatus: components["schemas"]["KnownTaskStatus"];
        /** @description A terminal that the gateway runs for an agent. */
        Terminal: {
            args: string[];
            command: string;
            createdAt: components["schemas"]["Timestamp"];
            cwd: string;
            exitStatus: components["schemas"]["TerminalExit"] | null;
            promptId: components["schemas"]["PromptId"] | null;
            terminalId: components["schemas"]["TerminalId"];
        };
        /** @description The gateway runs a command for the agent. */
        TerminalCreatedEvent: {
            args: string[];
            command: string;
            cwd: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            terminalId: components["schemas"]["TerminalId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "terminal.created";
        };
        /** @description The exit status of a terminal's command. If both members are null, the cause of the exit is unknown. */
        TerminalExit: {
            /**
             * Format: int32
             * @description The exit code; null if a signal ended the command.
             */
            exitCode: number | null;
            /** @description A signal name such as `SIGKILL`. */
            signal: string | null;
        };
        /** @description The last event of a terminal. */
        TerminalExitedEvent: {
            /** Format: int32 */
            exitCode: number | null;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            /** @description A signal name such as `SIGKILL`. If `exitCode` is null too, the cause of the exit is unknown. */
            signal: string | null;
            terminalId: components["schemas"]["TerminalId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "terminal.exited";
        };
        /** @description The id of a terminal in its session. */
        TerminalId: string;
        /** @description The terminals of a session. */
        TerminalList: {
            nextCursor: string | null;
            /** @description The terminals, the newest first. */
            terminals: components["schemas"]["Terminal"][];
        };
        /** @description A terminal printed output. */
        TerminalOutputEvent: {
            /** @description Output of the command to stdout and stderr, as complete characters. */
            data: string;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /**
             * Format: int64
             * @description The number of output bytes before `data`. It counts output that the log omitted, so it may exceed the
             *     logged bytes.
             */
            offset: number;
            /** @description The turn of the event; absent outside a turn. */
            promptId?: components["schemas"]["PromptId"];
            /**
             * Format: int64
             * @description The number of the event in its session. It starts at 1 and has no gaps.
             */
            seq: number;
            sessionId: components["schemas"]["SessionId"];
            terminalId: components["schemas"]["TerminalId"];
            /** @description The time at which the gateway appended the event. */
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "terminal.output";
        };
        /** @description A terminal and the last part of its output, folded from the log. */
        TerminalWindow: components["schemas"]["Terminal"] & {
            /** @description The cursor for `after` on the session's events. The stream then continues after this state. */
            lastEventId: components["schemas"]["EventId"];
            /**
             * Format: int64
             * @description The number of output bytes before `output`.
             */
            offset: number;
            /** @description The last part of the output, as text. */
            output: string;
            /** @description True if earlier output is missing. */
            truncated: boolean;
        };
        /** @description A text. */
        TextBlock: {
            text: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "text";
        } & {
            [key: string]: unknown;
        };
        /** @description A ticket: a short-lived key for a URL. */
        Ticket: {
            /** @description The time at which an unused ticket expires. */
            expiresAt: components["schemas"]["Timestamp"];
            /** @description The value for the query parameter `ticket`. */
            ticket: string;
        };
        /** @description Tickets were created with a key. */
        TicketCreatedEvent: {
            actor: components["schemas"]["AuditActor"];
            /**
             * Format: int64
             * @description The number of tickets since the last event with this actor.
             */
            count: number;
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "ticket.created";
        };
        /**
         * Format: date-time
         * @description A time in RFC 3339 format, in UTC with milliseconds.
         */
        Timestamp: string;
        /** @description The source of a session's title. */
        TitleBy: components["schemas"]["KnownTitleBy"];
        /** @description The end of a tool call that a permission allowed. */
        ToolCallOutcome: components["schemas"]["KnownToolCallOutcome"];
        /** @description The provider of an agent's file or terminal methods, the most restricted first. */
        ToolProvider: components["schemas"]["KnownToolProvider"];
        /** @description A page of turns, the newest first, and the session at the same cursor. */
        Transcript: {
            /**
             * @description The cursor for `after` on the session's events. The stream then continues after this state without a
             *     gap.
             */
            lastEventId: components["schemas"]["EventId"];
            /** @description The cursor of the next page; null on the last page. */
            nextCursor: string | null;
            session: components["schemas"]["Session"];
            turns: components["schemas"]["Turn"][];
        };
        /** @description A turn: the prompt, the messages and actions of the agent, and the result. */
        Turn: {
            /** @description The user that sent the prompt. Null if retention deleted the start of the turn. */
            by: string | null;
            /** @description Why the gateway cancelled the turn. Absent if it did not. */
            cancelCause?: components["schemas"]["CancelCause"];
            /** @description The last `usage_update` of the turn, raw ACP. It reports the fill level of the agent's context. */
            contextUsage: {
                [key: string]: unknown;
            } | null;
            createdAt: components["schemas"]["Timestamp"];
            endedAt: components["schemas"]["Timestamp"] | null;
            error: components["schemas"]["Problem"] | null;
            /** @description The items of the turn, in the order of their first event. */
            items: components["schemas"]["TurnItem"][];
            /** @description The plan at the end of the turn, raw ACP. Null if the turn did not change it. */
            plan: {
                [key: string]: unknown;
            } | null;
            /** @description The content blocks that the agent received, raw ACP. Null if retention deleted the start of the turn. */
            prompt: {
                [key: string]: unknown;
            }[] | null;
            promptId: components["schemas"]["PromptId"];
            status: components["schemas"]["PromptStatus"];
            /** @description The agent's stop reason, a value of ACP such as `end_turn`. */
            stopReason: string | null;
            /**
             * @description True if the turn exceeds the size limit of a transcript and items are omitted. The events contain all
             *     items.
             */
            truncated: boolean;
            /** @description The token usage of the turn, raw ACP. */
            usage: {
                [key: string]: unknown;
            } | null;
        };
        /** @description The agent compacted its context. */
        TurnCompaction: {
            /** @description Raw ACP: `compactionId`, `status`, `error`. */
            compaction: {
                [key: string]: unknown;
            };
            /** @description True if the item first appeared after the end of the turn. */
            late?: boolean;
            /** @description The agent's id of the child session that compacted its context. Absent for the session itself. */
            subagent?: string;
            /** @description The summary that remains in the context: content blocks, raw ACP. */
            summary: components["schemas"]["ContentBlock"][];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "compaction";
        };
        /** @description An item of a turn. `type` selects the schema. Clients must ignore unknown types. */
        TurnItem: components["schemas"]["KnownTurnItem"];
        /** @description A message, joined from its chunks. */
        TurnMessage: {
            /** @description Content blocks, raw ACP. Consecutive texts are joined into one block. */
            content: components["schemas"]["ContentBlock"][];
            /** @description True if the message arrived after the end of the turn. */
            late?: boolean;
            messageId?: string;
            role: components["schemas"]["Role"];
            /** @description The agent's id of the child session that sent the message. Absent for the session itself. */
            subagent?: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "message";
        };
        /** @description A notice of the agent to the user. */
        TurnNotice: {
            /** @description True if the item first appeared after the end of the turn. */
            late?: boolean;
            /** @description Raw ACP: `severity`, `title`, `description`. */
            notice: {
                [key: string]: unknown;
            };
            /** @description The agent's id of the child session that sent the notice. Absent for the session itself. */
            subagent?: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "notice";
        };
        /** @description An update of a kind that this version of the gateway does not know. */
        TurnOther: {
            /** @description True if the item first appeared after the end of the turn. */
            late?: boolean;
            /** @description The kind of the update. */
            sessionUpdate: string;
            /** @description The agent's id of the child session that sent the update. Absent for the session itself. */
            subagent?: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "other";
            /** @description Raw ACP. */
            update: {
                [key: string]: unknown;
            };
        };
        /** @description The outcome of a turn that has ended. */
        TurnOutcome: components["schemas"]["KnownTurnOutcome"];
        /** @description A request of the agent and its resolution. */
        TurnRequest: {
            /** @description The user that answered. */
            by?: string;
            createdAt: components["schemas"]["Timestamp"];
            error?: {
                [key: string]: unknown;
            };
            method: string;
            /** @description The options of a permission request, raw ACP. */
            options?: components["schemas"]["PermissionOption"][];
            /** @description The params of any other request, and of a permission request of ACP v2, raw ACP. */
            params?: components["schemas"]["RequestParams"];
            requestId: components["schemas"]["RequestId"];
            resolution: components["schemas"]["Resolution"] | null;
            resolvedAt: components["schemas"]["Timestamp"] | null;
            /** @description The answer, raw ACP. */
            result?: unknown;
            /** @description The agent's id of the child session that sent the request. Absent for the session itself. */
            subagent?: string;
            /** @description The tool call of a permission request. */
            toolCallId?: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "request";
        };
        /** @description A message between two sessions of the agent, from or to a child session. */
        TurnSessionMessage: {
            /** @description Content blocks, raw ACP. Consecutive texts are joined into one block. */
            content: components["schemas"]["ContentBlock"][];
            /** @description True if the item first appeared after the end of the turn. */
            late?: boolean;
            /** @description Raw ACP: `messageId`, `senderSessionId`, `recipientSessionId`, ... */
            message: {
                [key: string]: unknown;
            };
            /** @description The agent's id of the child session that sent the update. Absent for the session itself. */
            subagent?: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "session_message";
        };
        /** @description A child session of the agent after its last update. */
        TurnSubagent: {
            /** @description Raw ACP: `sessionId` (the agent's id of the child), `title`, `description`, `state`, ... */
            child: {
                [key: string]: unknown;
            };
            /** @description True if the item first appeared after the end of the turn. */
            late?: boolean;
            /** @description The agent's id of the child session that started this child. Absent for the session itself. */
            subagent?: string;
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "subagent";
        };
        /** @description A terminal of the agent after its last update (ACP v2). */
        TurnTerminal: {
            /** @description True if the item first appeared after the end of the turn. */
            late?: boolean;
            /** @description The agent's id of the child session of the terminal. Absent for the session itself. */
            subagent?: string;
            /**
             * @description Raw ACP: `terminalId`, and the members that the agent reported, such as `command`, `cwd`, `exitStatus`
             *     and `size`. `output.data` is the complete output in base64.
             */
            terminal: {
                [key: string]: unknown;
            };
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "agent_terminal";
        };
        /** @description A tool call after its last update. */
        TurnToolCall: {
            /** @description Output of commands that the agent ran itself and reported in `_meta` of the call's updates. */
            commands?: components["schemas"]["CommandOutput"][];
            /** @description True if the item first appeared after the end of the turn. */
            late?: boolean;
            /**
             * @description Present if the turn ended before the agent reported the end of this call. `toolCall.status` is then
             *     `failed`. The events contain the status that the agent sent.
             */
            settled?: components["schemas"]["Settled"];
            /** @description The agent's id of the child session of the call. Absent for the session itself. */
            subagent?: string;
            /**
             * @description Raw ACP: `toolCallId`, and the members that the agent reported, such as `title`, `kind`, `status`,
             *     `content`, `locations`, `rawInput` and `rawOutput`.
             */
            toolCall: {
                [key: string]: unknown;
            };
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "tool_call";
        };
        /** @description A member of the union that a later version added. Ignore it. */
        UnknownAuditLogEvent: {
            /** @description A value that this document does not list. */
            type: string;
        } & {
            [key: string]: unknown;
        };
        /** @description A member of the union that a later version added. Ignore it. */
        UnknownContentBlock: {
            /** @description A value that this document does not list. */
            type: string;
        } & {
            [key: string]: unknown;
        };
        /** @description A member of the union that a later version added. Ignore it. */
        UnknownSessionEvent: {
            /** @description A value that this document does not list. */
            type: string;
        } & {
            [key: string]: unknown;
        };
        /** @description A member of the union that a later version added. Ignore it. */
        UnknownTurnItem: {
            /** @description A value that this document does not list. */
            type: string;
        } & {
            [key: string]: unknown;
        };
        /** @description A program with the scope `actAs` acted for a user that did not exist. */
        UserCreatedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "user.created";
            /** @description As `TENANT/NAME`. */
            user: string;
        };
        /** @description A command changed a user. */
        UserUpdatedEvent: {
            actor: components["schemas"]["AuditActor"];
            groups: string[];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            isDeactivated: boolean;
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            role?: string | null;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "user.updated";
            user: string;
        };
        /** @description A webhook. */
        Webhook: {
            createdAt: components["schemas"]["Timestamp"];
            events: string[];
            /** @description True if the receiver has answered 410. The webhook gets no more deliveries. */
            gone: boolean;
            url: string;
            /** Format: uuid */
            webhookId: string;
        };
        /** @description A webhook was created, which sends events to another host. */
        WebhookCreatedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "webhook.created";
            url: string;
            webhookId: string;
        };
        /** @description A webhook was deleted. */
        WebhookDeletedEvent: {
            actor: components["schemas"]["AuditActor"];
            /** @description The cursor of the event: `<epoch>-<seq>`. */
            id: components["schemas"]["EventId"];
            /** @description The SHA-256 of the previous event in hex. `acp-gateway audit verify` checks it. */
            previous: string;
            /**
             * Format: int64
             * @description The number of the event in the audit log. It starts at 1 and has no gaps.
             */
            seq: number;
            time: components["schemas"]["Timestamp"];
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            type: "webhook.deleted";
            webhookId: string;
        };
        /** @description A delivery: one event for one webhook, or the end of a task for its `callbackUrl`. */
        WebhookDelivery: {
            /**
             * Format: int32
             * @description The number of attempts since the creation or the last retry of a client.
             */
            attempts: number;
            createdAt: components["schemas"]["Timestamp"];
            /**
             * Format: uuid
             * @description Also the header `webhook-id`. It is the same for all attempts.
             */
            deliveryId: string;
            /** Format: date-time */
            lastAttemptAt: string | null;
            /** @description Why the last attempt has no response. */
            lastError: string | null;
            /**
             * Format: int32
             * @description The status of the last response. Null if there was none.
             */
            lastStatus: number | null;
            /**
             * Format: date-time
             * @description Null if the delivery is not pending.
             */
            nextAttemptAt: string | null;
            sessionId: components["schemas"]["SessionId"] | null;
            state: components["schemas"]["WebhookDeliveryState"];
            /** @description The type of the event. */
            type: string;
            url: string;
            /**
             * Format: uuid
             * @description Null for the `callbackUrl` of a task.
             */
            webhookId: string | null;
        };
        /** @description A page of deliveries, newest first. */
        WebhookDeliveryList: {
            deliveries: components["schemas"]["WebhookDelivery"][];
            /** @description The cursor of the next page. Null on the last page. */
            nextCursor: string | null;
        };
        WebhookDeliveryState: components["schemas"]["KnownWebhookDeliveryState"];
        /** @description The webhooks, oldest first. */
        WebhookList: {
            /** @description The `cursor` of the next page; null on the last page. */
            nextCursor: string | null;
            webhooks: components["schemas"]["Webhook"][];
        };
        /** @description The secret that signs all deliveries. */
        WebhookSecret: {
            /** @description `whsec_` and 32 bytes in base64, for a library of Standard Webhooks. */
            secret: string;
        };
        /** @description A folder in which a session can work. */
        WorkspaceFolder: {
            name: string;
            /** @description The absolute path, for `cwd` of a session and for `path` of this route. */
            path: string;
        };
        /** @description A page of folders. */
        WorkspaceFolderList: {
            folders: components["schemas"]["WorkspaceFolder"][];
            /** @description The cursor of the next page; null on the last page. */
            nextCursor: string | null;
            /** @description The folder above. Null if sessions cannot work in it. */
            parent: string | null;
            /** @description The listed folder. Null for the list of the roots. */
            path: string | null;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;

export const EVENT_TYPES = [
  "session.created",
  "session.attached",
  "session.detached",
  "session.changed",
  "session.privileged_mode",
  "session.closed",
  "session.deleted",
  "prompt.queued",
  "prompt.changed",
  "prompt.started",
  "session.update",
  "prompt.completed",
  "prompt.failed",
  "request.created",
  "request.resolved",
  "elicitation.completed",
  "terminal.created",
  "terminal.output",
  "terminal.exited",
  "agent.exited",
  "agent.invalid_output",
  "extension",
  "reset",
  "ready",
  "position",
  "session.summary",
  "summaries.reset",
  "session.shared",
  "session.unshared",
  "problem",
  "shutdown",
  "end"
] as const;
