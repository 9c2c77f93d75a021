-- Slurm asks the broker before it takes a job that wants GPUs (slurm.conf: JobSubmitPlugins=lua; this file lies beside
-- slurm.conf). Whatever goes wrong on the way is a refusal: without the broker nobody gets GPUs.
--
-- Settings: GPUBROKER_ADMISSION is the address, GPUBROKER_CURL a file for `curl --config` with mode 0600 that holds the
-- token of a service account with the role `gate` (scope `admission`):
--     header = "Authorization: Bearer gpb_..."
-- slurmctld waits for the answer: at most GPUBROKER_PATIENCE seconds. GPUBROKER_WHOLE_NODES: partitions without GPUs, as
-- "cpu,big", in which --exclusive is allowed; elsewhere it gives every GPU of a node to a job that was judged for fewer.
-- GPUBROKER_ARRAYS=yes lets arrays with GPUs in, once slurm_prolog.sh is the PrologSlurmctld: it has the money of each
-- task held before the task begins. Without it, arrays with GPUs are refused.
local ADMISSION = os.getenv("GPUBROKER_ADMISSION") or "http://127.0.0.1:9464/api/v1/admission/slurm"
local CURL = os.getenv("GPUBROKER_CURL") or "/etc/slurm/gpubroker.curl"
local PATIENCE = tonumber(os.getenv("GPUBROKER_PATIENCE") or "") or 5
local WHOLE_NODES = "," .. (os.getenv("GPUBROKER_WHOLE_NODES") or "") .. ","
local ARRAYS = os.getenv("GPUBROKER_ARRAYS") == "yes"
local UNSET = 4294967294 -- Slurm's NO_VAL; one more is INFINITE
local EXCLUSIVE = 0 -- of `shared`

local function json_string(text)
   return '"' .. text:gsub('[%c"\\\127]', function(one) return string.format("\\u%04x", one:byte()) end) .. '"'
end

-- The value of a string in an answer of the broker, which is JSON on one line.
local function field(answer, name)
   local begins = answer:find('"' .. name .. '":"', 1, true)
   if begins == nil then return nil end
   local said, at = {}, begins + #name + 4
   while at <= #answer do
      local one = answer:sub(at, at)
      if one == '"' then return table.concat(said) end
      if one == "\\" then
         at = at + 1
         one = answer:sub(at, at)
         if one == "u" then one, at = "?", at + 4 elseif one:find("[bfnrt]") then one = " " end
      end
      said[#said + 1] = one
      at = at + 1
   end
   return nil
end

local function number(value)
   value = tonumber(value)
   return value ~= nil and value > 0 and value < UNSET and value or nil
end

-- What a node is to have: --gres, --gpus-per-node; what Slurm divides itself cannot be judged by node.
local function gpus(job)
   local wanted = job.tres_per_node or job.gres
   if wanted ~= nil and wanted:find("gpu") then return wanted end
   for _, other in ipairs({"tres_per_job", "tres_per_socket", "tres_per_task"}) do
      if job[other] ~= nil and job[other]:find("gpu") then return nil, true end
   end
   return nil, false
end

local function user_of(job, uid)
   if job.user_name ~= nil and job.user_name ~= "" then return job.user_name end
   local asked = io.popen(string.format("getent passwd %d", uid))
   local line = asked and asked:read("*l") or nil
   if asked then asked:close() end
   return line and line:match("^([^:]+):") or nil
end

local function ask(body)
   local name = os.tmpname() -- no word of a user is ever part of a command
   local file = io.open(name, "w")
   if file == nil then return nil end
   file:write(body)
   file:close()
   local command = string.format(
      "curl --silent --max-time %d --config '%s' --header 'Content-Type: application/json' --data-binary '@%s' "
         .. "--write-out '\\n%%{http_code}' '%s' 2>/dev/null",
      PATIENCE, CURL, name, ADMISSION)
   local asked = io.popen(command)
   local answer = asked and asked:read("*a") or ""
   if asked then asked:close() end
   os.remove(name)
   return answer:match("^(.*)\n(%d+)$")
end

function slurm_job_submit(job, partitions, uid)
   local wanted, divided = gpus(job)
   if divided then
      slurm.log_user("gpubroker: say how many GPUs each node is to have: --gpus-per-node or --gres")
      return slurm.ERROR
   end
   if job.shared == EXCLUSIVE and (wanted ~= nil or not WHOLE_NODES:find("," .. (job.partition or "") .. ",", 1, true)) then
      slurm.log_user("gpubroker: --exclusive gives every GPU of a node: ask for them by --gres instead")
      return slurm.ERROR
   end
   if wanted == nil then return slurm.SUCCESS end
   local tasks = job.array_inx
   if tasks == "" then tasks = nil end
   if tasks ~= nil and not ARRAYS then
      slurm.log_user("gpubroker: an array with GPUs is judged by `gpubroker submit` (array:); or submit its tasks one by one")
      return slurm.ERROR
   end
   local user = user_of(job, uid)
   if user == nil then
      slurm.log_user("gpubroker: your account has no name here")
      return slurm.ERROR
   end
   local nodes = number(job.max_nodes) or number(job.min_nodes) or 1
   local parts = {
      '"user":' .. json_string(user),
      '"gres":' .. json_string(wanted),
      '"name":' .. json_string(job.name or ""),
      '"partition":' .. json_string(job.partition or ""),
      '"nodes":' .. string.format("%d", nodes),
   }
   if job.account ~= nil and job.account ~= "" then parts[#parts + 1] = '"team":' .. json_string(job.account) end
   if number(job.time_limit) then parts[#parts + 1] = '"minutes":' .. string.format("%d", job.time_limit) end
   if tasks ~= nil then parts[#parts + 1] = '"array":' .. json_string(tasks) end
   local ticket = job.environment ~= nil and job.environment["GPUBROKER_TICKET"] or nil
   if ticket ~= nil then parts[#parts + 1] = '"ticket":' .. json_string(ticket) end

   local answer, status = ask("{" .. table.concat(parts, ",") .. "}")
   if status ~= "200" then
      local why = answer and field(answer, "detail") or "the broker does not answer, so nobody gets GPUs now"
      slurm.log_user("gpubroker: %s", why)
      return slurm.ERROR
   end
   job.admin_comment = field(answer, "id") -- the epilog reports the end by it
   job.max_nodes = nodes -- else many tasks get more
   -- What runs again would be free, as the end was reported; but before a task of an array begins, the prolog asks.
   job.requeue = tasks ~= nil and 1 or 0
   return slurm.SUCCESS
end

-- What would make a job larger than it was judged. INFINITE counts as a value.
local function enlarges(change)
   for _, name in ipairs({"time_limit", "min_nodes", "max_nodes"}) do
      if change[name] ~= nil and change[name] ~= UNSET then return true end
   end
   for _, name in ipairs({"tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task", "gres", "partition",
                          "admin_comment", "array_inx"}) do
      if change[name] ~= nil then return true end
   end
   return change.shared == EXCLUSIVE or change.requeue == 1
end

-- A job that was judged cannot be made larger afterwards; an administrator (uid 0) may.
function slurm_job_modify(change, job, partitions, uid)
   if uid ~= 0 and enlarges(change) then
      slurm.log_user("gpubroker: what was judged is not changed afterwards; submit the job again")
      return slurm.ERROR
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
