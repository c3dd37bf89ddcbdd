// The object of a problem: the data for the actions at the place where it is shown.

import { createContext } from "react";
import type { GatewayClient } from "@acp-gateway/client";

export const Where = createContext<{ client: GatewayClient; agent: string | null } | null>(null);
