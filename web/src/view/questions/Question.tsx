// Every question of the agent that is not a permission: a form, a page to open, or anything else.

import type { GatewayClient, RequestItem } from "@acp-gateway/client";
import type { Act } from "../act";
import { FormCard } from "./FormCard";
import { LinkCard } from "./LinkCard";
import { OtherCard } from "./OtherCard";
import "./questions.css";

interface Props {
  request: RequestItem;
  client: GatewayClient;
  sessionId: string;
  act: Act;
}

export function Question({ request, client, sessionId, act }: Props) {
  if (request.method === "elicitation/create") {
    const Card = request.params["mode"] === "url" ? LinkCard : FormCard;
    return <Card request={request} act={act} send={(answer) => client.answerElicitation(sessionId, request.requestId, answer)} />;
  }
  return <OtherCard request={request} act={act} send={(answer) => client.answerRequest(sessionId, request.requestId, answer)} />;
}
