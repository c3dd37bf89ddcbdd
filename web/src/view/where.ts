// The object of a problem: the data for the actions at the place where it is shown.

import { createContext } from "react";
import type { Client } from "../api/client";

export const Where = createContext<{ client: Client; agent: string | null } | null>(null);
