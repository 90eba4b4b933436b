// The opencode integration of agentfsd: a snapshot before each prompt and each call of a tool, and what the call changed.
// `agentfsd agent remove opencode` removes it. A failure never stops opencode: `agentfsd hook` logs it and answers {}.
import { spawn } from "node:child_process"

const COMMAND = ["@COMMAND@"]
const READING = new Set(["read", "glob", "grep", "list", "ls", "webfetch", "websearch", "todoread", "todowrite", "question", "skill"])
const PATIENCE_MS = 10000

function hook(event, input, directory) {
  return new Promise((resolve) => {
    let said = ""
    const child = spawn(COMMAND[0], [...COMMAND.slice(1), "hook", event, "--for", "opencode"], {
      cwd: directory,
      stdio: ["pipe", "pipe", "ignore"],
      timeout: PATIENCE_MS,
    })
    child.on("error", () => resolve({}))
    child.stdin.on("error", () => {})
    child.stdout.on("data", (part) => (said += part))
    child.on("close", () => {
      try {
        resolve(JSON.parse(said))
      } catch {
        resolve({})
      }
    })
    child.stdin.end(JSON.stringify({ hook_event_name: event, cwd: directory, ...input }))
  })
}

export const AgentfsdPlugin = async ({ directory }) => {
  const introductions = new Map() // by session: what the model is told about the branch
  const notes = new Map() // by session: what it is told about this turn
  return {
    event: async ({ event }) => {
      const session = event.properties?.info?.id ?? event.properties?.sessionID
      if (event.type === "session.created" && !event.properties?.info?.parentID)
        introductions.set(session, (await hook("session-start", { session_id: session }, directory)).context)
      if (event.type === "session.deleted") await hook("session-end", { session_id: session }, directory)
    },
    "chat.message": async (input, output) => {
      const prompt = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text).join(" ")
      notes.set(input.sessionID, (await hook("prompt", { session_id: input.sessionID, prompt }, directory)).context)
    },
    "experimental.chat.system.transform": async (input, output) => {
      for (const text of [introductions.get(input.sessionID), notes.get(input.sessionID)]) if (text) output.system.push(text)
    },
    "tool.execute.before": async (input, output) => {
      if (READING.has(input.tool)) return
      const call = { tool_name: input.tool, tool_input: output.args, tool_use_id: input.callID }
      await hook("before-tool", { session_id: input.sessionID, ...call }, directory)
    },
    "tool.execute.after": async (input, output) => {
      if (READING.has(input.tool)) return
      const call = { tool_name: input.tool, tool_input: input.args, tool_use_id: input.callID }
      const answer = await hook("after-tool", { session_id: input.sessionID, ...call }, directory)
      if (answer.context && typeof output?.output === "string") output.output += "\n\n" + answer.context
    },
  }
}
