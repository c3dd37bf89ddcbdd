// An ACP agent whose turns have as many updates as the prompt says.

import { mixedUpdates } from "./mixed.mjs";
import { serve } from "./prompted_agent.mjs";

serve("mixed", (text) => mixedUpdates(Number(text)));
