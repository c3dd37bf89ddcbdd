// The requests of all sessions that wait for an answer.

import { useCallback, useEffect, useState, type ReactNode } from "react";
import { type GatewayClient, known, type RequestItem, requestItem, type SessionSummary, Unreachable } from "@acp-gateway/client";
import { records, visible } from "@acp-gateway/client/read";
import { requestAction } from "../model/action";
import { useMay } from "../model/rights";
import { sessionHref } from "../model/route";
import { strings } from "../strings";
import { Page } from "./Page";
import { PermissionCard } from "./PermissionCard";
import { ProblemNote } from "./ProblemNote";
import { useProblem } from "./useProblem";
import { Where } from "./where";
import { WorkingFolder } from "./workingFolder";

interface Props {
  client: GatewayClient;
  sessions: SessionSummary[] | null;
  menu: ReactNode;
  onAnswered(): void;
}

export function InboxPage({ client, sessions, menu, onAnswered }: Props) {
  const waiting = sessions?.filter((session) => known(session.state) === "waiting");
  return (
    <Page title={strings.inbox.inbox} menu={menu}>
      {waiting?.length === 0 && <p className="tasks-lead">{strings.inbox.empty}</p>}
      {waiting?.map((session) => <Entry key={session.sessionId} client={client} session={session} onAnswered={onAnswered} />)}
    </Page>
  );
}

/** Whether the request itself has more than a title. The rest of its call is in the conversation. */
function showsCall(request: RequestItem): boolean {
  const { command, targets, input } = requestAction(request, null);
  return command !== null || targets.length > 0 || input != null || records(request.toolCall?.["content"]).length > 0 || request.toolCallId === null;
}

function Entry({ client, session, onAnswered }: { client: GatewayClient; session: SessionSummary; onAnswered(): void }) {
  const [requests, setRequests] = useState<RequestItem[]>([]);
  const [error, setError] = useProblem(session);
  const mayApprove = useMay(client, "approve");
  const { sessionId, lastActivityAt } = session;

  // Each request and each answer is an activity of the session.
  useEffect(() => {
    const stop = new AbortController();
    client.requests(sessionId, { signal: stop.signal }).then(
      (pending) => setRequests(pending.flatMap((request) => requestItem(request, request.requestId) ?? [])),
      (reason: unknown) => !stop.signal.aborted && setError(reason),
    );
    return () => stop.abort();
    // After a lost connection, the next state of the session reads them again.
  }, [client, sessionId, lastActivityAt, error instanceof Unreachable && session]);

  const answered = useCallback(
    async (requestId: string, answer: Parameters<GatewayClient["answerPermission"]>[2]) => {
      try {
        await client.answerPermission(sessionId, requestId, answer);
        setRequests((before) => before.filter((request) => request.requestId !== requestId));
        onAnswered();
        return true;
      } catch (reason) {
        setError(reason);
        return false;
      }
    },
    [client, sessionId, onAnswered, setError],
  );

  return (
    <section className="inbox-entry" role="group" aria-label={visible(session.title ?? session.agent)}>
      <div className="recent-head">
        <h2 className="recent-title" dir="auto">{visible(session.title ?? strings.common.untitled)}</h2>
        <a className="link-button" href={sessionHref(sessionId)}>
          {strings.common.openSession}
        </a>
      </div>
      {error !== null && <ProblemNote error={error} />}
      {!mayApprove && <p className="permission-note">{strings.key.mayNotAnswer}</p>}
      <Where value={{ client, agent: session.agent }}>
        <WorkingFolder value={session.cwd ?? null}>
          {requests.map((request) =>
            request.method === "session/request_permission" && !request.reserved && showsCall(request) ? (
              <fieldset key={request.requestId} className="answers" disabled={!mayApprove}>
                <PermissionCard
                  request={request}
                  tool={null}
                  terminals={{}}
                  isDenied={() => false}
                  onAnswer={(answer) => answered(request.requestId, answer)}
                  listed
                />
              </fieldset>
            ) : (
              <section key={request.requestId} className="permission" role="group" aria-label={request.title}>
                <p className="permission-title">{request.title || strings.requests.asksSomething}</p>
                <p className="permission-text">{request.reserved ? strings.inbox.forEditor : request.method === "session/request_permission" ? strings.inbox.openToSee : strings.inbox.openToAnswer}</p>
              </section>
            ),
          )}
        </WorkingFolder>
      </Where>
    </section>
  );
}
