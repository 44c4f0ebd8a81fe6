"use strict";

const $ = (id) => document.getElementById(id);
const turns = []; // {role, content}
let attached = []; // {name, url, clip} of the pictures and clips of the next message
const largest = 2048; // pixels an edge of a picture that is sent; the tower reads fewer
const rate = 16000; // samples per second of a clip that is sent: those that models take
let model = {};
let running = null; // AbortController of the answer in progress

function say(text, error) {
  $("status").textContent = text;
  $("status").classList.toggle("error", Boolean(error));
}

function headers() {
  const h = {"Content-Type": "application/json"};
  if ($("token").value) h.Authorization = "Bearer " + $("token").value;
  return h;
}

// problem reads the error of an answer.
async function problem(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return "the server answered with status " + response.status;
  }
}

async function start() {
  try {
    const response = await fetch("v1/models", {headers: headers()});
    if (response.status === 401) {
      $("token-row").hidden = false;
      $("settings").open = true;
      $("token").focus();
      say("This server needs a token.");
      return;
    }
    if (!response.ok) throw new Error(await problem(response));
    model = (await response.json()).data[0];
    $("model").textContent = model.id;
    document.title = model.id + " · llmexport";
    $("thinking-row").hidden = !model.capabilities.thinking;
    const {pictures, sound} = model.capabilities;
    $("attach").hidden = !pictures && !sound;
    $("attach").textContent = "Add " + [pictures && "pictures", sound && "clips"].filter(Boolean).join(" or ");
    $("file").accept = [pictures && "image/jpeg,image/png,image/webp,image/gif,image/bmp", sound && "audio/*"].filter(Boolean).join(",");
    say(model.capabilities.chat ? "" : "This package has no chat template, so there is nothing to talk to.", !model.capabilities.chat);
  } catch (error) {
    say("The server cannot be reached: " + error.message, true);
  }
}

// show adds a message to the page and returns a function that sets its text.
function show(role, content, attachments) {
  $("empty").hidden = true;
  const item = document.createElement("li");
  item.className = role;
  const head = document.createElement("div");
  head.className = "head";
  const name = document.createElement("h2");
  name.textContent = role === "user" ? "You" : model.id || "Model";
  const copy = document.createElement("button");
  copy.type = "button";
  copy.className = "copy";
  copy.textContent = "Copy";
  copy.setAttribute("aria-label", "Copy message " + ($("messages").children.length + 1));
  const thought = document.createElement("details");
  thought.className = "thought";
  thought.hidden = true;
  const summary = document.createElement("summary");
  summary.textContent = "Thoughts";
  const thinking = document.createElement("p");
  thinking.className = "text";
  thought.append(summary, thinking);
  const text = document.createElement("p");
  text.className = "text";
  const shown = document.createElement("div");
  shown.className = "attachments";
  shown.append(...(attachments || []).map(drawing));
  head.append(name, copy);
  item.append(head, thought, shown, text);
  $("messages").append(item);
  let all = "";
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(all);
      say("Copied.");
    } catch {
      say("The browser does not allow copying here.", true);
    }
  });
  const set = (value) => {
    all = value;
    const parts = /^\s*<think>([\s\S]*?)(?:<\/think>([\s\S]*))?$/.exec(value);
    thought.hidden = !parts || !parts[1].trim();
    thinking.textContent = parts ? parts[1].trim() : "";
    text.textContent = parts ? (parts[2] || "").trimStart() : value;
    const box = $("conversation");
    box.scrollTop = box.scrollHeight;
  };
  set(content);
  return set;
}

// drawing returns the element of a picture or clip.
function drawing(attachment) {
  const element = document.createElement(attachment.clip ? "audio" : "img");
  element.src = attachment.url;
  if (attachment.clip) {
    element.controls = true;
    element.setAttribute("aria-label", attachment.name);
  } else {
    element.alt = attachment.name;
  }
  return element;
}

// address returns a blob as a data: URL.
function address(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

// readClip returns a sound that the browser can play as a WAV file of one channel, converted with a better filter than the server's.
async function readClip(file) {
  const sound = await new OfflineAudioContext(1, 1, rate).decodeAudioData(await file.arrayBuffer());
  const samples = new Int16Array(sound.length);
  for (let channel = 0; channel < sound.numberOfChannels; channel++) {
    sound.getChannelData(channel).forEach((v, i) => { samples[i] += Math.round(Math.max(-1, Math.min(1, v)) * 32767 / sound.numberOfChannels); });
  }
  const bytes = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  [0x52494646, 36 + 2 * samples.length, 0x57415645, 0x666d7420, 16, 1 + (1 << 16), rate, 2 * rate, 2 + (16 << 16), 0x64617461, 2 * samples.length]
    .forEach((v, i) => bytes.setUint32(4 * i, v, ![0, 2, 3, 9].includes(i))); // names are not numbers
  samples.forEach((v, i) => bytes.setInt16(44 + 2 * i, v, true));
  return address(new Blob([bytes], {type: "audio/wav"}));
}

// readPicture returns a picture, smaller if it is large, with a better filter than the tower's.
async function readPicture(file) {
  const bitmap = await createImageBitmap(file);
  if (Math.max(bitmap.width, bitmap.height) <= largest) return address(file);
  const scale = largest / Math.max(bitmap.width, bitmap.height);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.92);
}

// attach adds files to those of the next message.
async function attach(files) {
  for (const file of files) {
    const clip = file.type.startsWith("audio/");
    const what = clip ? "sound" : "pictures";
    if (!model.capabilities[what]) {
      say(file.name + ": this package reads no " + what + ".", true);
      continue;
    }
    try {
      attached.push({name: file.name, url: await (clip ? readClip : readPicture)(file), clip});
    } catch {
      say(file.name + " is not a " + (clip ? "clip" : "picture") + " that the browser can read.", true);
    }
  }
  list();
}

// list shows the pictures and clips of the next message.
function list() {
  $("attached").replaceChildren(...attached.map((attachment) => {
    const item = document.createElement("li");
    const remove = document.createElement("button");
    remove.type = "button";
    remove.textContent = "Remove";
    remove.setAttribute("aria-label", "Remove " + attachment.name);
    remove.addEventListener("click", () => {
      attached = attached.filter((a) => a !== attachment);
      list();
      $("attach").focus();
    });
    item.append(drawing(attachment), remove);
    return item;
  }));
}

function number(id) {
  const value = $(id).valueAsNumber;
  return Number.isNaN(value) ? undefined : value;
}

function request() {
  const messages = [...turns];
  if ($("system").value.trim()) messages.unshift({role: "system", content: $("system").value});
  const body = {model: model.id, messages, stream: true, stream_options: {include_usage: true}};
  for (const id of ["temperature", "top_p", "top_k", "max_tokens", "seed"]) body[id] = number(id);
  if (!$("thinking-row").hidden && $("thinking").value) {
    const on = $("thinking").value === "on";
    body.chat_template_kwargs = {enable_thinking: on, thinking: on};
  }
  return JSON.stringify(body);
}

// events yields the documents of a stream.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

// part returns what stands for a picture or clip in a request.
function part({url, clip}) {
  return clip ? {type: "input_audio", input_audio: {data: url.slice(url.indexOf(",") + 1), format: "wav"}} : {type: "image_url", image_url: {url}};
}

async function ask(message, attachments) {
  const parts = attachments.map(part);
  turns.push({role: "user", content: parts.length ? [...parts, {type: "text", text: message}] : message});
  show("user", message, attachments);
  const set = show("assistant", "");
  running = new AbortController();
  $("send").disabled = true;
  $("stop").hidden = false;
  say("Answering.");
  const begun = performance.now();
  let answer = "", first = 0, end = "", usage = null;
  try {
    const response = await fetch("v1/chat/completions", {method: "POST", headers: headers(), body: request(), signal: running.signal});
    if (!response.ok) throw new Error(await problem(response));
    for await (const event of events(response)) {
      usage = event.usage || usage;
      const choice = event.choices[0];
      if (!choice) continue;
      if (choice.delta.content) {
        first = first || performance.now();
        answer += choice.delta.content;
        set(answer);
      }
      end = choice.finish_reason || end;
    }
    const seconds = (performance.now() - first) / 1000;
    const rate = usage && usage.completion_tokens > 1 && seconds > 0 ? ", " + ((usage.completion_tokens - 1) / seconds).toFixed(1) + " tokens/s" : "";
    say(usage ? `${usage.prompt_tokens} prompt tokens (${usage.prompt_tokens_details.cached_tokens} cached), first after ` +
      `${(((first || performance.now()) - begun) / 1000).toFixed(2)} s, ${usage.completion_tokens} tokens${rate}` +
      (end === "length" ? "; the answer reached its limit of tokens" : "") : "Done.");
  } catch (error) {
    if (error.name === "AbortError") say("Stopped.");
    else say(error.message, true);
  }
  running = null;
  $("send").disabled = false;
  $("stop").hidden = true;
  if (answer) {
    turns.push({role: "assistant", content: answer});
  } else { // the question goes back to where it was written
    turns.pop();
    $("messages").lastChild.remove();
    $("messages").lastChild.remove();
    $("empty").hidden = turns.length > 0;
    if (!$("message").value) $("message").value = message;
    attached = [...attachments, ...attached];
    list();
  }
  $("message").focus();
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const message = $("message").value;
  if (running || !message.trim()) return;
  $("message").value = "";
  const attachments = attached;
  attached = [];
  list();
  ask(message, attachments);
});
$("attach").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", async () => {
  await attach([...$("file").files]);
  $("file").value = "";
  $("message").focus();
});
$("message").addEventListener("paste", (event) => {
  const files = [...event.clipboardData.files];
  if ($("attach").hidden || !files.length) return;
  event.preventDefault();
  attach(files);
});
$("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("form").requestSubmit();
  }
});
$("stop").addEventListener("click", () => running && running.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running) running.abort();
});
$("reset").addEventListener("click", () => {
  if (running) running.abort();
  turns.length = 0;
  attached = [];
  list();
  $("messages").replaceChildren();
  $("empty").hidden = false;
  say("A new conversation.");
  $("message").focus();
});
$("token").addEventListener("change", start);
$("access").addEventListener("submit", (event) => event.preventDefault()); // Enter changes the token, too
start();
