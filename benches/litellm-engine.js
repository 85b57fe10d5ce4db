#!/usr/bin/env node
// Prisma's query engine for LiteLLM, out of what npm has: its WebAssembly build in @prisma/client,
// over node-postgres. LiteLLM's own engine is a binary that only Prisma's server has. LiteLLM asks
// in GraphQL, this build in JSON.
const from = name => require(`${process.env.PRISMA_NPM}/node_modules/${name}`)
if (process.argv.includes('--version')) {
    console.log('query-engine wasm')
    process.exit()
}
const fs = require('fs')
const http = require('http')
const { parse, valueFromASTUntyped } = from('graphql')
const { PrismaPg } = from('@prisma/adapter-pg')
const { bindAdapter } = from('@prisma/driver-adapter-utils')
const pg = from('pg')
const glue = from('@prisma/client/runtime/query_engine_bg.postgresql.js')

// Types of PostgreSQL that the adapter does not know, as text: `void`, `regclass`, `name[]`.
const known = { 2278: 25, 2205: 25, 1003: 1009 }
const { prototype } = from('pg/lib/result')
const { addFields } = prototype
prototype.addFields = function (fields) {
    for (const field of fields) field.dataTypeID = known[field.dataTypeID] ?? field.dataTypeID
    return addFields.call(this, fields)
}

const wasm = fs.readFileSync(
    `${process.env.PRISMA_NPM}/node_modules/@prisma/client/runtime/query_engine_bg.postgresql.wasm`)
const imports = { './query_engine_bg.js': glue }
const instance = new WebAssembly.Instance(new WebAssembly.Module(wasm), imports)
glue.__wbg_set_wasm(instance.exports)
const datamodel = fs.readFileSync(process.env.PRISMA_DML_PATH, 'utf8')
const engine = new glue.QueryEngine({
    datamodel, env: process.env, ignoreEnvVarErrors: true, datasourceOverrides: {}, configDir: '.',
    logLevel: 'error', logQueries: false,
}, line => console.error(line), bindAdapter(new PrismaPg(
    new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 10 }))))

// Text for a field of JSON is JSON in GraphQL; here it needs a mark.
const ofJson = new Set()
for (const [, model, lines] of datamodel.matchAll(/^model (\w+) \{([^]*?)^\}/gm)) {
    for (const [, name] of lines.matchAll(/^\s+(\w+)\s+Json\b/gm)) ofJson.add(`${model}.${name}`)
}
function marked(value, model, json) {
    if (Array.isArray(value)) return value.map(one => marked(one, model, json))
    if (typeof value === 'string') return json ? { $type: 'Json', value } : value
    if (!value || typeof value !== 'object') return value
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name,
        marked(inner, model, ofJson.has(`${model}.${name}`) || json && name === 'equals')]))
}
const fields = set => Object.fromEntries(set.selections.map(field =>
    [field.name.value, field.selectionSet ? selected(field) : true]))
const selected = (field, model) => ({
    arguments: Object.fromEntries(field.arguments.map(argument =>
        [argument.name.value, marked(valueFromASTUntyped(argument.value), model)])),
    selection: field.selectionSet ? fields(field.selectionSet) : {},
})
const one = '(?:create|update|delete|upsert)(?:One|Many)|find(?:Many|First|Unique)'
const named = new RegExp(`^(queryRaw|executeRaw|aggregate|groupBy|${one})(.*?)(OrThrow)?$`)
function inJson(asked) {
    const [field] = parse(asked.query).definitions[0].selectionSet.selections
    const [, action, model, orThrow = ''] = field.name.value.match(named)
    const query = selected(field, model)
    return { modelName: model || undefined, action: action + orThrow, query }
}

function plain(value) {
    if (Array.isArray(value)) return value.map(plain)
    if (!value || typeof value !== 'object') return value
    if ('$type' in value) return value.value
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, plain(inner)]))
}
function typed(value, type) {
    if (value === null) return { prisma__type: 'null', prisma__value: null }
    if (!type.endsWith('-array')) return { prisma__type: type, prisma__value: value }
    return { prisma__type: 'array', prisma__value: value.map(one => typed(one, type.slice(0, -6))) }
}
const rows = ({ columns, types, rows }) => rows.map(row =>
    Object.fromEntries(row.map((value, at) => [columns[at], typed(value, types[at])])))
function inGraphql(answer) {
    if (answer.batchResult) return { ...answer, batchResult: answer.batchResult.map(inGraphql) }
    if (!answer.data) return answer
    const [[action, data]] = Object.entries(answer.data)
    return { data: { result: action === 'queryRaw' ? rows(data) : plain(data) } }
}

async function answer(url, text, transaction) {
    const [, kind, id, end] = url.split('/')
    if (kind === 'transaction' && end) return engine[`${end}Transaction`](id, '{}')
    if (kind === 'transaction') return engine.startTransaction(text, '{}')
    if (kind) return '{"status":"ok"}'
    const asked = JSON.parse(text)
    const body = !asked.batch ? inJson(asked)
        : { batch: asked.batch.map(inJson), transaction: asked.transaction ? {} : undefined }
    const got = await engine.query(JSON.stringify(body), '{}', transaction)
    return JSON.stringify(inGraphql(JSON.parse(got)))
}

const server = http.createServer(async (request, response) => {
    let text = ''
    for await (const part of request.setEncoding('utf8')) text += part
    try {
        const body = await answer(request.url, text, request.headers['x-transaction-id'])
        response.setHeader('content-type', 'application/json').end(body)
    } catch (error) {
        console.error(error, text)
        response.writeHead(500).end(String(error))
    }
})
const port = process.argv[process.argv.indexOf('-p') + 1]
engine.connect('{}').then(() => server.listen(port, 'localhost'))
