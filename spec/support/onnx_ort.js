// Runs a model in ONNX Runtime: node onnx_ort.js FOLDER MODEL FEEDS.json; prints the outputs as JSON. FOLDER holds node_modules.
// FEEDS: { name: { dtype, dims, data } }.
const path = require('path'), fs = require('fs');
const ort = require(path.join(process.argv[2], 'node_modules', 'onnxruntime-node'));
const KIND = { float32: Float32Array, int64: BigInt64Array, bool: Uint8Array, float64: Float64Array, int32: Int32Array };
(async () => {
  const session = await ort.InferenceSession.create(process.argv[3], { logSeverityLevel: 3, graphOptimizationLevel: 'disabled' });
  const feeds = {};
  for (const [name, t] of Object.entries(JSON.parse(fs.readFileSync(process.argv[4], 'utf8')))) {
    const data = t.dtype === 'int64' ? BigInt64Array.from(t.data.map(BigInt)) : KIND[t.dtype].from(t.data);
    feeds[name] = new ort.Tensor(t.dtype, data, t.dims);
  }
  const results = await session.run(feeds);
  const out = {};
  for (const name of session.outputNames) out[name] = { dims: results[name].dims, data: Array.from(results[name].data, Number) };
  console.log(JSON.stringify(out));
})().catch((e) => { console.error(String(e)); process.exit(1); });
