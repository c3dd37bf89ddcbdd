// Whom a problem is about: what is needed to do something about it where it is shown.

import { createContext } from "react";
import type { Client } from "../api/client";

export const Where = createContext<{ client: Client; agent: string | null } | null>(null);
